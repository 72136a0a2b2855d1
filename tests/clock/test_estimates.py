"""Which loops are surely over soon: the estimates are rough, and never too low by much."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from benchax.clock import rewriting

X = jnp.ones((64, 64))


def estimate(f: Callable[..., Any], *args: Any) -> float:
    return rewriting.program_ns(jax.make_jaxpr(f)(*args))


@pytest.mark.parametrize(
    "unknown",
    [
        lambda x: lax.while_loop(lambda x: x[0, 0] < 3, jnp.sin, x),
        lambda x: jax.pure_callback(lambda x: x, x, x),
        jnp.linalg.cholesky,
        jnp.sort,
        jnp.fft.fft,
        jax.jit(lambda x: lax.cond(x[0, 0] > 0, jnp.sin, jnp.linalg.inv, x)),
    ],
)
def test_what_nobody_knows_may_take_for_ever(unknown: Callable[..., Any]) -> None:
    assert estimate(unknown, X) == math.inf
    assert estimate(lambda x: lax.fori_loop(0, 3, lambda _, x: x + unknown(x).real.sum(), x), X) == math.inf


def test_a_loop_of_no_iterations_takes_nothing_whatever_is_in_it() -> None:
    """Not infinity times zero, which is no number, and would hide what is around it."""
    assert estimate(lambda x: lax.scan(lambda x, _: (jnp.sort(x), None), x, None, length=0)[0], X) == 0


def test_time_grows_with_iterations_elements_and_products() -> None:
    body = lambda _, x: x * 0.5  # noqa: E731
    once, often = (estimate(lambda x, n=n: lax.fori_loop(0, n, body, x), X) for n in (10, 1000))

    assert often == pytest.approx(100 * once)
    assert estimate(jnp.sin, X) > estimate(jnp.negative, X) >= X.size
    assert estimate(lambda x: x @ x, X) > 2 * 64**3 * rewriting.FLOP_NS
    assert estimate(lambda x: x @ x, X.astype(jnp.int32)) > estimate(lambda x: x @ x, X)


def test_a_branch_takes_as_long_as_the_longest() -> None:
    branches = [jnp.negative, jnp.sin, lambda x: x]

    found = estimate(lambda i, x: lax.switch(i, branches, x), 1, X)

    assert estimate(jnp.sin, X) <= found < estimate(jnp.sin, X) + estimate(jnp.negative, X)
