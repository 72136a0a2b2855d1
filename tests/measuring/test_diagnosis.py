"""An exception from a user's function becomes a failure that says which argument, which line, and what to do."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpy.linalg as la
import pytest
import scipy.special
from jax_versions import NAMES_INDICES

from benchax import bench
from benchax.errors import UsageError
from benchax.measuring.diagnosis import REMEDIES, diagnose, explain, user_line


def failure_of(fn, *args, stage="trace"):
    try:
        jax.jit(fn)(*args)
    except Exception as error:
        return diagnose(error, stage)
    raise LookupError("it did not fail")


def branch(x, y):
    return y if x > 0 else -y


def loop(x, n):
    while n > 0:
        n = n - 1
    return x


@pytest.mark.parametrize(
    ("fn", "args", "argument"),
    [
        (branch, (1.0, 2.0), "x"),
        (loop, (1.0, 3), "n"),
        (lambda x, i: [1, 2, 3][i], (1.0, 1), "i"),
    ],
    ids=["if", "while", "list index"],
)
def test_a_tracer_error_names_the_argument_the_line_and_three_remedies(fn, args, argument):
    failure = failure_of(fn, *args)

    assert failure.kind == "error"
    assert REMEDIES.format(argument=f"the argument {argument}") in failure.advice
    assert "jax.lax.cond" in failure.advice
    assert __file__ in failure.message
    assert "Traceback" in failure.traceback


def test_our_own_errors_keep_their_hint_as_advice():
    failure = diagnose(UsageError("no such thing 'x'", "y or z", "write y"), "inputs")

    assert failure.message == "no such thing 'x'; expected y or z"
    assert failure.advice == "write y"


def donated() -> jax.Array:
    x = jnp.ones(3)
    jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    return x


def calls_wrongly(x):
    return (lambda a, b: a)(x)


@pytest.mark.parametrize(
    ("fn", "args", "kind", "message", "advice"),
    [
        (lambda x: "abc", (1.0,), "wrong_output", "<class 'str'>", "measure it eagerly (jit=False, --no-jit)"),
        (
            lambda x, mode: x,
            (1.0, "fast"),
            "error",
            "jax.jit does not take mode, a str",
            "If argument mode is a setting and not data, declare it static (static=...).",
        ),
        (
            lambda x: jnp.zeros(1 << 42) + x,
            (1.0,),
            "out_of_memory",
            "RESOURCE_EXHAUSTED",
            "Measure a smaller case",
        ),
        (lambda y: y + 1, (donated(),), "error", "deleted", "after it had been donated"),
        (
            jax.vmap(jnp.dot),
            (jnp.ones((1000, 4)), jnp.ones((10, 4))),
            "error",
            "one axis had size 1000: axis 0 of argument a of type float32[1000,4]; one axis had size 10",
            "give in_axes=(0, None) for those that are shared",
        ),
        (calls_wrongly, (1.0,), "error", "TypeError: ", ""),  # which is not a call without inputs
        (lambda x: 1 // 0, (1.0,), "error", "ZeroDivisionError: integer division or modulo by zero (at ", ""),
    ],
)
def test_an_error_keeps_its_type_and_its_first_line_and_has_the_advice_that_fits(fn, args, kind, message, advice):
    failure = failure_of(fn, *args)

    assert (failure.kind, failure.stage) == (kind, "trace")
    assert message in failure.message
    assert advice in failure.advice
    assert bool(advice) == bool(failure.advice)


def test_an_error_without_a_frame_of_the_user_has_no_line():
    assert user_line(ValueError("from nowhere")) is None
    assert diagnose(ValueError(), "inputs").message == "ValueError"
    assert diagnose(MemoryError("no room"), "inputs").kind == "out_of_memory"
    # What does not come of a traced value is not explained.
    assert explain(TypeError("unsupported operand type(s) for *: 'list' and 'str'")) is None
    assert explain(IndexError("list index out of range")) is None


def test_an_error_whose_text_raises_is_a_failure_like_any_other_and_its_hint_is_none_of_ours():
    class MuteError(Exception):
        hint = 7

        def __str__(self):
            raise KeyError

    def mute(x):
        raise MuteError

    failure = bench(mute, "f32[4]", store="off").failure

    assert failure.message.startswith("MuteError: <exception str() failed> (at ")
    assert failure.advice == ""


def test_a_call_without_inputs_is_told_where_inputs_are_given():
    failure = bench(lambda x, y: x + y, 1.0, stages="build", store="off").failure

    assert failure is not None
    assert "Inputs follow the function" in failure.advice


# ---- tracer errors ----------------------------------------------------------------------------------------------
#
# What a traced value was needed for, whose it was, and the remedies that fit. Most programs are those of tutorials.


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


def test_an_expression_that_cannot_be_read_leaves_the_remedies():
    scope = {"jnp": jnp}
    exec("def head(x, n):\n    return x[:n]", scope)

    found = explained(scope["head"], jnp.ones(4), 3)

    argument = "the argument n" if NAMES_INDICES else "the argument"
    assert (found.use, found.argument) == ("size", argument)
    assert f"Three remedies: declare {argument} static" in found.advice
