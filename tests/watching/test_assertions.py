"""`no_recompile` and `max_compiles`: what passes, what fails, and what the error says."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest

import benchax
from benchax.errors import NotMeasured, UsageError

X3, X4 = np.ones(3, np.float32), np.ones(4, np.float32)


def fresh() -> Callable[..., Any]:
    def step(x: jax.Array) -> jax.Array:
        return jax.lax.add(x, x)

    return jax.jit(step)


def calls(block: AbstractContextManager[Any], function: Callable[..., Any], *each: Any) -> None:
    with block:
        for x in each:
            function(x)


def test_the_error_names_the_function_the_count_the_line_the_reason_and_what_to_do():
    step = fresh()

    with pytest.raises(benchax.RecompileError) as caught:
        calls(benchax.max_compiles(1), step, X3, X4)

    lines = str(caught.value).splitlines()
    assert lines[0] == "2 programs were compiled inside max_compiles(1)"
    assert lines[1].startswith("  step (defined at ")
    assert ": 2, " in lines[1]
    assert ": first call" in lines[2]
    assert "test_assertions.py:" in lines[3]
    assert lines[3].endswith(": x: shape f32[3] → f32[4]")
    assert lines[4] == "expected at most 1; eager operations are not counted"
    assert "pad to a few sizes" in lines[-1]
    assert caught.value.watch is not None
    assert len(caught.value.watch.compiles) == 2
    assert isinstance(caught.value, AssertionError)
    assert isinstance(caught.value, benchax.BenchaxError)


def test_as_many_as_permitted_pass():
    step = fresh()

    with benchax.max_compiles(2) as seen:
        step(X3)
        step(X4)
        step(X3)

    assert len(seen.compiles) == 2


def test_eager_operations_count_where_that_is_wanted():
    with benchax.no_recompile() as seen:
        jnp.ones((3, 1, 4, 1))
    assert seen.eager

    with pytest.raises(benchax.RecompileError, match="eager operations included"):
        calls(benchax.no_recompile(eager=True), jnp.ones, (3, 1, 4, 2))


def test_an_exception_of_the_block_goes_before():
    def fail(x: jax.Array) -> None:
        fresh()(x)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        calls(benchax.no_recompile(), fail, X3)


def test_a_block_whose_events_were_lost_does_not_pass():
    with pytest.raises(NotMeasured, match=r"could not all be counted: jax\.monitoring\.clear_event_listeners"):
        calls(benchax.no_recompile(), lambda _: jax.monitoring.clear_event_listeners(), X3)


def test_many_lines_are_cut():
    step = fresh()

    with pytest.raises(benchax.RecompileError) as caught:
        calls(benchax.no_recompile(), step, *(np.ones(n, np.float32) for n in range(1, 13)))

    assert "    and 2 more" in str(caught.value).splitlines()


def test_it_decorates_a_function():
    step = fresh()

    @benchax.no_recompile()
    def loop() -> None:
        step(X3)

    with pytest.raises(benchax.RecompileError, match=r"1 program was compiled inside no_recompile\(\)"):
        loop()
    loop()


@pytest.mark.parametrize("n", [-1, 1.5, True, "2"])
def test_a_limit_that_is_no_number_of_programs_is_told(n: Any):
    with pytest.raises(UsageError, match="expected a whole number from 0 up"), benchax.max_compiles(n):
        pass


def test_a_loop_outside_of_jit_is_warm_unless_its_body_is_new_each_time() -> None:
    def halve(c: Any, _: Any) -> Any:
        return c * 0.5, None

    def rollout(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (c * 0.5, c.sum()), x, None, length=3)

    x = jnp.ones(3)
    rollout(x)
    jax.lax.scan(halve, x, None, length=3)
    with pytest.raises(benchax.RecompileError, match="a body that is new in each call"), benchax.no_recompile():
        rollout(x)
    with benchax.no_recompile():
        jax.lax.scan(halve, x, None, length=3)
