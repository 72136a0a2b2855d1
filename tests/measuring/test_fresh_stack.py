"""What is timed has no callers: what a call costs does not depend on how deep in a program it stands."""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from stack_depths import count_frames, under

from benchax import bench
from benchax.measuring.timers.base import on_fresh_stack

VARIABLE: ContextVar[str] = ContextVar("VARIABLE", default="not set")


@pytest.mark.parametrize("timer", ["wall", "pipelined"])
def test_timers_of_calls_call_from_an_empty_stack(timer: str) -> None:
    seen: list[int] = []

    def eager(x: Any) -> Any:
        seen.append(count_frames())
        return x + 1

    row = bench(eager, np.ones(4, np.float32), jit=False, timer=timer, processes=1, max_time_s=0.02, store="off")

    timed = row.summary(timer)
    assert timed is not None
    assert sum(count <= 4 for count in seen) >= timed.n


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_calls_share_a_stack_also_after_an_error_and_from_other_threads(error: BaseException) -> None:
    def sample(n: int) -> int:
        if n < 0:
            raise error
        return 10 * n + count_frames()

    read = on_fresh_stack(sample)

    assert [under(20, lambda n=n: read(n)) for n in (1, 2)] == [12, 22]  # two frames: what makes calls, and `sample`
    with pytest.raises(type(error)) as caught:
        read(-1)
    assert caught.value is error
    assert read(3) == 32
    with ThreadPoolExecutor(1) as other:
        assert other.submit(read, 4).result() == 42
    assert read(5) == 52


def test_between_calls_it_holds_neither_arguments_nor_results() -> None:
    add = on_fresh_stack(lambda x: x + 1)

    for _ in range(2):
        given = np.zeros(3)
        made = add(given)
        alive = weakref.ref(given), weakref.ref(made)
        del given, made
        assert [ref() for ref in alive] == [None, None]


def test_what_holds_in_a_context_holds_in_each_reading() -> None:
    read = on_fresh_stack(lambda n: int(jax.config.jax_enable_checks) + len(VARIABLE.get()))

    found = [read(1)]
    token = VARIABLE.set("")
    with jax.enable_checks(True):
        found.append(read(1))
    VARIABLE.reset(token)

    assert found == [len("not set"), 1]


@pytest.mark.serial
def test_a_call_under_many_frames_takes_no_longer() -> None:
    double = jax.jit(lambda x: 2 * x)
    x = jnp.ones(4)

    def read() -> int:
        begun = perf_counter_ns()
        for _ in range(30):
            double(x).block_until_ready()
        return perf_counter_ns() - begun

    fresh = on_fresh_stack(read)
    readings = [(fresh(), under(300, fresh), under(300, read)) for _ in range(200)]
    at_the_top, deep, deep_and_plain = (min(each) for each in zip(*readings, strict=True))

    assert deep < 1.2 * at_the_top
    assert deep_and_plain > 1.3 * at_the_top  # what it is for; where JAX ceases to do so, this module may go
