"""Stages on one device, which is there twice, for what does not need several."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.experiments import pipes
from benchax.experiments.devices import DeviceReading
from benchax.experiments.pipes import Pipe, bubble, skip_reason_of
from benchax.experiments.variants.pipeline import ONE_THREAD


def tried(fns: list[Any], x: Any, count: int, *, is_timed: bool = False) -> DeviceReading:
    chained = functools.reduce(lambda value, fn: fn(value), fns, x)
    pipe = Pipe(tuple(map(jax.jit, fns)), (jax.devices()[0],) * len(fns))
    return pipes.try_pipe(pipe, x, count, chained, is_timed=is_timed)


def test_a_stage_that_mixes_the_rows_gives_a_wrong_result_and_no_time() -> None:
    found = tried([jnp.sin, lambda x: x - x.mean()], jnp.arange(8.0), 2)

    assert found.facts[0][0] == "wrong result:"
    assert found.time == (None, None, None)


@pytest.mark.parametrize("low", [None, 1.0])
def test_a_median_without_an_interval_is_not_told(monkeypatch, low: float | None) -> None:
    monkeypatch.setattr(pipes, "time_calls", lambda call: (1.5, low, low))
    monkeypatch.setattr(pipes, "seen_idle", lambda call, devices: ())

    found = tried([jnp.sin, jnp.cos], jnp.arange(8.0), 2, is_timed=True)

    assert found.time == ((1.5, 1.0, 1.0) if low else (None, None, None))
    assert ("not timed:" in dict(found.facts)) is (low is None)


@pytest.mark.parametrize(
    ("last", "x", "why"),
    [
        (jnp.sum, jnp.ones(8), "the last stage gives a scalar for each micro-batch"),
        (jnp.sin, jnp.float32(1), "x is no batch"),
    ],
)
def test_what_cannot_be_cut_or_put_together_says_so(last, x, why: str) -> None:
    assert why in tried([jnp.sin, last], x, 1).why


def test_trees_pass_through() -> None:
    batch = {"a": jnp.arange(6.0), "b": jnp.ones((6, 2), jnp.int8)}

    found = dict(tried([lambda t: t, lambda t: {**t, "a": t["a"] + 1}], batch, 3).facts)

    assert found["handed on:"] == "36 B in 3 transfers"


def test_each_tick_begins_with_the_last_stage() -> None:
    seen: list[tuple[int, int]] = []

    def stage(number: int, x: Any) -> Any:
        seen.append((number, int(x)))
        return x

    pipe = Pipe(tuple(functools.partial(stage, i) for i in range(3)), (jax.devices()[0],) * 3)
    pipe([np.int32(0), np.int32(1)])

    assert seen == [(0, 0), (1, 0), (0, 1), (2, 0), (1, 1), (2, 1)]


def test_devices_that_slow_one_another_down_are_not_timed() -> None:
    assert skip_reason_of(2, 2, lambda: 1.1) == ""
    assert "all stages at once take 1.90 times as long" in skip_reason_of(2, 4, lambda: 1.9)
    assert skip_reason_of(4, 1, lambda: pytest.fail("not asked")) == "4 fake devices share 1 core"


def test_one_device_in_place_of_two_is_a_slowdown() -> None:
    pipe = Pipe((jax.jit(jnp.sin), jax.jit(jnp.sin)), (jax.devices()[0],) * 2)

    assert pipe.slowdown(jnp.ones(2**20)) > 1


@given(st.integers(2, 64), st.integers(1, 10_000))
def test_more_micro_batches_leave_a_smaller_bubble(stages: int, parts: int) -> None:
    assert 0 < bubble(stages, parts + 1) < bubble(stages, parts) <= (stages - 1) / stages


def test_the_bubble_of_the_paper() -> None:
    """GPipe, figure 2 c: 4 partitions, 4 micro-batches."""
    assert bubble(4, 4) == 3 / 7


def test_each_fake_device_has_one_thread_only() -> None:
    """XLA still knows the flag: it ends a process that has one it does not know."""
    code = "import jax; print(jax.jit(lambda x: x @ x)(jax.numpy.ones((2, 2)))[0, 0])"
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "XLA_FLAGS": ONE_THREAD}, capture_output=True, text=True
    )

    assert (done.returncode, done.stdout.strip()) == (0, "2.0"), done.stderr
