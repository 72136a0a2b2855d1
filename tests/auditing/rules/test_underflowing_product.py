"""Products that leave the range of their dtype."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "underflowing-product"
X = np.random.default_rng(0).uniform(0.3, 0.7, (500,)).astype(np.float32)


def likelihood(x: Any) -> Any:
    p = jax.nn.sigmoid(x)
    return -jnp.log(jnp.prod(p) + 1e-30)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (likelihood, X),
        (jax.value_and_grad(likelihood), X),
        (jax.vmap(jax.grad(likelihood)), np.stack([X, X])),
        (lambda x: jnp.log(jnp.cumprod(x)), X),
        (lambda x: jnp.cumprod(100 * x), X),
        (lambda x: jnp.sum(x) / jnp.prod(x), X),
        (lambda x: jax.lax.associative_scan(lambda a, b: a * b, 100 * x), X),
        (lambda x: jnp.prod(100 * x), X),
        (lambda x: jnp.prod(x, axis=1), np.stack([X] * 7)),
    ],
)
def test_products_that_become_0_or_infinite_are_found(ask_about: Any, fn: Any, x: Any) -> None:
    assert ask_about(ID, fn, x).one.advice.startswith("Add logarithms")


def test_the_number_of_factors_their_size_and_the_line_are_told(ask_about: Any) -> None:
    finding = ask_about(ID, jax.value_and_grad(likelihood), X).one

    assert finding.title == "a product of 500 factors is 0, and none of them is"
    assert finding.seen[0] == "with the arguments of one call 1 of 1 results are 0 or not finite"
    assert finding.seen[1].endswith("in the geometric mean")
    assert finding.seen[2].startswith("numbers of float32 have sizes from 1.18e-38 to 3.4e+38")
    assert finding.where == (__file__, likelihood.__code__.co_firstlineno + 2)


@pytest.mark.parametrize(
    ("fn", "x"),
    [
        (lambda x: jnp.prod(x), X + 0.5),
        (lambda x: jnp.prod(x), X[:50]),
        (lambda x: jnp.prod(x.at[3].set(0)), X),
        (lambda x: jnp.prod(x), np.full(500, np.inf, np.float32)),
    ],
    ids=["in range", "few", "a factor is 0", "a factor is infinite"],
)
def test_products_in_range_and_of_zeros_are_fine(ask_about: Any, fn: Any, x: Any) -> None:
    assert ask_about(ID, fn, x).outcome == "fine"


def decay(x: Any) -> Any:
    """A linear recurrence by pairs, as of a state space model."""
    return jax.lax.associative_scan(lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (x, x))[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "fn",
    [
        decay,
        jax.grad(lambda x: jnp.sum(decay(x) ** 2)),
        lambda x: jnp.sum(jnp.cumprod(x) * x),
        lambda x: 1 - jnp.prod(1 - x),
        lambda x: jnp.log(1 - jnp.prod(1 - x[None], axis=1)),
    ],
    ids=["recurrence", "its derivative", "weights", "any of many", "logarithm of any of many"],
)
def test_a_product_for_which_0_is_as_good_is_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, X).outcome == "fine"


@pytest.mark.parametrize(
    "fn", [lambda x: jnp.sum(x), lambda x: jnp.prod(x[:8]), lambda x: x * x, lambda x: x[:9] * x[1:10]]
)
def test_without_a_long_product_it_is_not_applicable(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, X).outcome == "not applicable"
