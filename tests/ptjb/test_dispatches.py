"""Jitted work is found by what a call dispatches, however the jitted function is called."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pytest_jax_bench.dispatches import Observed, can_be_observed, is_jitted, unwrap

X = jnp.ones(3)
double = jax.jit(lambda x, by=2: x * by)
compiled = double.lower(X).compile()
ARGS, NAMED = (X,), {"by": 3}


def observed(fn, *args) -> Observed:
    found = Observed(fn, 2)
    for _ in range(3):
        found(*args)
    return found


def wait_for(x):
    jax.block_until_ready(double(x))


class Model:
    def __call__(self):
        return double(X)

    def step(self):
        return double(X)

    async def later(self):
        return double(X)


@pytest.mark.parametrize(
    "fn",
    [
        lambda: double(X),
        lambda: double(X).block_until_ready(),
        lambda: jax.block_until_ready(double(*ARGS)),
        lambda: double(X, **NAMED),
        lambda: double(X)[0].block_until_ready(),
        lambda: double(X).sum(),
        lambda: np.asarray(double(X)),
        lambda: jax.tree.map(jax.block_until_ready, double(X)),
        lambda: [double(X) for _ in range(3)],
        lambda: double(double(X)),
        lambda: wait_for(X),
        functools.partial(wait_for, X),
        Model().step,
        Model(),
        functools.partial(Model()),
    ],
)
def test_a_jitted_function_is_found_however_it_is_called(fn) -> None:
    found = observed(fn)

    assert can_be_observed(fn)
    assert found.dispatches
    assert found.program is not None
    assert found.program.fn is double
    assert found.program.args[0].shape == (3,)


@pytest.mark.parametrize("fn", [lambda: jnp.sin(X) + 1, lambda: math.sin(1.0), lambda: None, lambda: jnp.ones(3).sum()])
def test_eager_operations_are_no_jitted_work(fn) -> None:
    found = observed(fn)

    assert found.dispatches == []
    assert found.program is None


OTHER = jax.jit(lambda x: x + 1)
DONATING = jax.jit(lambda x: x + 1, donate_argnums=0)


@pytest.mark.parametrize(
    ("fn", "count"),
    [(lambda: OTHER(double(X)), 2), (lambda: compiled(X), 1), (lambda: DONATING(jnp.ones(3)), 1)],
    ids=["several functions", "a compiled program", "arguments that are gone"],
)
def test_jitted_work_without_one_function_that_could_be_compiled_has_no_program(fn, count: int) -> None:
    found = observed(fn)

    assert (len(found.dispatches), found.program) == (count, None)


def test_only_programs_that_jax_kept_are_look_ups() -> None:
    fresh = jax.jit(lambda x: x - 7)

    def build():
        fresh.clear_cache()
        return fresh.lower(X).compile()

    assert not observed(build).is_lookup
    assert observed(lambda: fresh.lower(X).compile()).is_lookup
    assert not observed(lambda: double(X)).is_lookup


def test_no_call_is_added_and_what_it_raises_is_raised() -> None:
    calls = []

    def fails():
        calls.append(1)
        if len(calls) == 2:
            raise RuntimeError("2")

    found = Observed(fails, 3)
    found()
    with pytest.raises(RuntimeError, match="2"):
        found()
    assert len(calls) == 2


def test_a_jax_without_the_hook_is_told_from_a_call_without_jitted_functions(monkeypatch) -> None:
    assert observed(lambda: None).is_blind is False

    monkeypatch.delattr("jax._src.api._post_hook_state")
    found = observed(lambda: double(X))

    assert found.is_blind
    assert found.dispatches == []


def test_jitted_functions_are_told_from_operations_of_jax() -> None:
    own = jax.jit(jnp.sin)

    assert is_jitted(own)
    assert is_jitted(jax.jit(jnp.add))
    assert is_jitted(jax.jit(jax.vmap(jnp.sin)))
    assert is_jitted(double)
    assert not is_jitted(jnp.sin)
    assert not is_jitted(print)
    assert unwrap(functools.partial(double, X), (), {"by": 3}) == (double, (X,), {"by": 3})
    assert not can_be_observed(print)
    assert not can_be_observed(Model)
    assert not can_be_observed(Model().later)
