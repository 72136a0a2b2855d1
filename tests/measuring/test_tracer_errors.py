"""What a traced value was needed for, whose it was, and the remedies that fit. Most programs are those of tutorials."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpy.linalg as la
import pytest
import scipy.special
from jax_versions import NAMES_INDICES

from benchax.measuring.diagnosis import explain


def repeated(x, n):
    return jnp.concatenate([x] * n)


def repeated_from_the_left(x, n):
    return jnp.concatenate(n * (x,))


def head(x, n):
    return x[:n]


def padded(x, n, max_n=10):
    tiles = jnp.concatenate([x] * 10)
    return tiles[: n * x.shape[0]]


def local(x, n):
    half = n // 2
    return x[half:,]


def explained(fn, *args):
    with pytest.raises((TypeError, IndexError)) as caught:
        jax.jit(fn)(*args)
    found = explain(caught.value)
    assert found is not None, caught.value
    return found


@pytest.mark.parametrize(
    ("fn", "argument", "expression"),
    [
        (repeated, "the argument n", "[x] * n"),
        (repeated_from_the_left, "the argument n", "n * (x,)"),
        (head, "the argument n", "x[:n]"),
        (padded, "the argument n", "tiles[: n * x.shape[0]]"),
        (local, "the argument n" if NAMES_INDICES else "half", "x[half:,]"),
        (lambda x, n: jnp.zeros(n) + x[0], "the argument n", "jnp.zeros(n)"),
        (lambda x, n: jnp.arange(n), "the argument n", "jnp.arange(n)"),
        (lambda x, n: jnp.repeat(x, n), "the argument n", "jnp.repeat(x, n)"),
    ],
)
def test_a_size_that_comes_from_a_value_has_the_remedies_of_sizes(fn, argument, expression):
    found = explained(fn, jnp.ones(4), 3)

    assert (found.use, found.argument, found.expression) == ("size", argument, expression)
    assert found.advice.startswith(f"The value of {argument} is not known while tracing, and the size of an array")
    assert all(way in found.advice for way in ("static_argnames", "jax.lax.dynamic_slice", "jit only the inner part"))
    assert "jax.lax.cond" not in found.advice


@pytest.mark.parametrize(
    ("fn", "theirs", "ours"),
    [
        (lambda x: np.sin(x), "np.sin", "jnp.sin"),
        (lambda x: np.linalg.norm(x), "np.linalg.norm", "jnp.linalg.norm"),
        (lambda x: la.norm(x), "la.norm", "jnp.linalg.norm"),
        (lambda x: scipy.special.erf(x), "scipy.special.erf", "jax.scipy.special.erf"),
        (lambda x: math.sqrt(x[0]), "math.sqrt", "jnp.sqrt"),
    ],
    ids=["numpy", "a module of it", "under another name", "scipy", "math"],
)
def test_a_function_of_numpy_is_named_with_the_one_of_jax(fn, theirs, ours):
    found = explained(fn, jnp.ones(4))

    assert found.use == "library"
    assert f"{theirs} needs values and computes at once. Use {ours}, which JAX can trace." in found.advice
    assert "If the function contains no jit, you can measure it as it is: --no-jit (jit=False)." in found.advice


@pytest.mark.parametrize(
    "fn",
    [lambda x: x[x > 0], lambda x: jnp.nonzero(x)[0], lambda x: jnp.unique(x)],
    ids=["mask", "nonzero", "unique"],
)
def test_a_selection_has_the_remedies_of_selections(fn):
    found = explained(fn, jnp.ones(4))

    assert found.use == "selection"
    assert "jnp.where(mask, x, 0)" in found.advice
    assert "jnp.nonzero(mask, size=largest" in found.advice
    assert "static" not in found.advice


def test_what_does_not_come_of_a_traced_value_is_not_explained():
    assert explain(TypeError("unsupported operand type(s) for *: 'list' and 'str'")) is None
    assert explain(IndexError("list index out of range")) is None


def test_an_expression_that_cannot_be_read_leaves_the_remedies():
    scope = {"jnp": jnp}
    exec("def head(x, n):\n    return x[:n]", scope)

    found = explained(scope["head"], jnp.ones(4), 3)

    argument = "the argument n" if NAMES_INDICES else "the argument"
    assert (found.use, found.argument) == ("size", argument)
    assert f"Three remedies: declare {argument} static" in found.advice
