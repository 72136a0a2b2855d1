"""A donating function gets its outputs back as its next arguments, as in `state = step(state)`, where they fit."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_versions import tells_runs

from benchax.measuring.timers import TIMERS
from benchax.measuring.timers.base import FED_BACK, FRESH_COPIES, Subject
from benchax.model import Measurement

Make = Callable[..., Subject]


@pytest.mark.parametrize("name", ["wall", "pipelined"])
@pytest.mark.parametrize(("factor", "expected"), [(2.0, [1, 2, 4, 8, 16]), (1e30, [1, 1, 1, 1])])
def test_each_call_of_a_sample_gets_what_the_one_before_returned_while_that_stays_finite(
    name: str, factor: float, expected: list[float], subject: Make
) -> None:
    seen: list[float] = []

    def step(x: Any) -> Any:
        jax.debug.callback(lambda first: seen.append(float(first)), x[0])
        return x * factor

    prepared = TIMERS[name].prepare(subject(step, jnp.ones(4), donate=[0]))
    seen.clear()
    prepared.sample(4)
    jax.effects_barrier()

    assert seen == expected


@pytest.mark.parametrize(("name", "rows"), [("in_graph", 8 * [[1, 2, 4, 8]]), ("loop", [[1, 2], [1, 2, 4, 8, 16, 32]])])
def test_a_repetition_inside_a_program_gets_what_the_one_before_returned(
    name: str, rows: list[list[float]], subject: Make
) -> None:
    seen: list[float] = []

    def step(scale: Any, state: Any) -> Any:
        jax.debug.callback(lambda first: seen.append(float(first)), state["w"][0], ordered=False)
        return state["w"].sum(), {"w": state["w"] * scale}

    prepared = TIMERS[name].prepare(subject(step, jnp.float32(2), {"w": jnp.ones(4)}, donate=[1]))
    seen.clear()
    prepared.sample(4)
    jax.effects_barrier()

    assert seen == [value for row in rows for value in row]


@pytest.mark.serial
@pytest.mark.parametrize("name", ["in_graph", "loop"])
def test_inside_a_program_an_update_in_place_copies_nothing(name: str, subject: Make) -> None:
    def update(x: Any) -> Any:
        return x.at[3].add(1.0)

    donated, copied = (TIMERS[name].prepare(subject(update, jnp.ones(2**18), donate=donate)) for donate in ([0], []))

    assert min(donated.sample(8) for _ in range(5)) < 0.3 * min(copied.sample(8) for _ in range(5))


def _with_loss(batch: Any, state: Any) -> Any:
    return state["w"].sum(), {"w": state["w"] * 0.5 + batch.sum()}


def _until_small(x: Any) -> Any:
    """Done at once with what it returns."""
    return jax.lax.while_loop(lambda y: jnp.abs(y).max() > 0.1, lambda y: y / 2, x)


@pytest.mark.filterwarnings("ignore:Some donated buffers were not usable")
@pytest.mark.parametrize("name", ["wall", "pipelined", pytest.param("device", marks=tells_runs)])
@pytest.mark.parametrize(
    ("fn", "args", "donate", "regime"),
    [
        (lambda x: jnp.sin(x), ("f32[100000]",), [0], FED_BACK),
        (_with_loss, ("f32[100000]", {"w": "f32[100000]"}), [1], FED_BACK),
        (lambda x, y: (jnp.sin(y), jnp.cos(x)), ("f32[100000]", "f32[100000]"), [0, 1], FED_BACK),
        (lambda x: jnp.sin(x).sum(), ("f32[100000]",), [0], FRESH_COPIES),
        (lambda x: jnp.sort(x), ("f32[10000]",), [0], FRESH_COPIES),
        (_until_small, ("f32[100000]",), [0], FRESH_COPIES),
        (lambda x: jax.lax.fori_loop(0, 9, lambda _, y: jnp.sin(y), x), ("f32[100000]",), [0], FED_BACK),
        (lambda x: jnp.sin(x), ("f32[100000]",), [], None),
    ],
)
def test_what_a_timer_gives_to_calls_that_donate_is_said(
    name: str, fn: Any, args: Any, donate: list[int], regime: str | None, subject: Make
) -> None:
    made = subject(fn, *args, donate=donate)

    assert TIMERS[name].prepare(made).regime == regime
    assert not any(leaf.is_deleted() for leaf in made.inputs.data)


def test_fresh_copies_are_remarked(bench: Callable[..., Measurement]) -> None:
    m = bench(lambda x: jnp.sin(x).sum(), "f32[1000]", donate=[0], options={"timer": "wall"})

    assert "wall gave each call fresh copies" in {r.code: r.message for r in m.remarks}["fresh-copies"]
    fed = bench(lambda x: jnp.sin(x), "f32[1000]", donate=[0], options={"timer": "wall"})
    assert "fresh-copies" not in {r.code for r in fed.remarks}


@pytest.mark.serial
@pytest.mark.parametrize("name", ["wall", "pipelined"])
def test_an_update_in_place_takes_as_long_as_in_a_loop_by_hand(name: str, subject: Make) -> None:
    """On fresh copies it takes twice to three times as long."""
    made = subject(lambda x: x * 0.99 + 0.01, "f32[65536]", donate=[0])
    sample, n = TIMERS[name].prepare(made).sample, 16

    def by_hand() -> int:
        x = jax.block_until_ready(made.program.call(made.inputs.args[0].copy()))
        start = perf_counter_ns()
        for _ in range(n):
            x = made.program.call(x)
            if name == "wall":
                x.block_until_ready()
        x.block_until_ready()
        return perf_counter_ns() - start

    readings = np.array([(sample(n), by_hand()) for _ in range(100)])
    timer_ns, hand_ns = np.quantile(readings, 0.1, axis=0)

    assert 0.6 < timer_ns / hand_ns < 1.6
