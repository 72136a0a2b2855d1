"""Which early results hold NaN."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_versions import shows_calls

from benchax.auditing import nan_calls
from benchax.auditing.call_counter import CallCounter


def nan_at(run: Any, fn: Any) -> int | None:
    """As noted of a program that runs so."""
    counter = CallCounter(60.0)
    try:
        run()
    finally:
        counter.close()
    known = [fun for fun in counter.nans._functions if getattr(fun, "__name__", "") == fn.__name__]
    return counter.nans.nan_at(known[0]) if known else None


@shows_calls
@pytest.mark.parametrize(("bad", "found"), [(1, 1), (2, 2), (3, 0), (None, 0)])
def test_a_few_early_calls_are_looked_at(bad: int | None, found: int) -> None:
    f = jax.jit(lambda x: jnp.sqrt(x))

    def run() -> None:
        for i in range(1, 4):
            f(jnp.full(3, -1.0 if i == bad else 1.0))

    assert nan_at(run, f) == found


@shows_calls
def test_results_that_were_donated_are_looked_at_before() -> None:
    f = jax.jit(lambda x: jnp.sqrt(x) - 1, donate_argnums=0)

    def run() -> None:
        x = jnp.full(3, 0.5)
        for _ in range(4):
            x = f(x)

    assert nan_at(run, f) == 2


@shows_calls
def test_large_results_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nan_calls, "MOST_BYTES", 8)
    f = jax.jit(lambda x: x + 1)

    assert nan_at(lambda: [f(jnp.ones(3)) for _ in range(3)], f) is None
