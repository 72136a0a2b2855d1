"""What is noted of a program while it runs."""

from __future__ import annotations

import threading

import jax
import jax.numpy as jnp

from benchax.auditing.call_counter import ENOUGH, CallCounter

NO_TIME_S = 1e-9


def test_a_window_whose_time_went_into_compiling_stays_open_for_calls_to_come() -> None:
    f, x = jax.jit(lambda x: x + 1), jnp.ones(3)
    counter = CallCounter(NO_TIME_S)
    try:
        f(x)
        (timer,) = [thread for thread in threading.enumerate() if thread is counter.timer]
        timer.join()  # the time of the window is over
        for _ in range(ENOUGH["jitted"] - 1):
            f(x)
        assert counter.jitted.total() == ENOUGH["jitted"]
        assert counter.opened is not None
        while counter.opened is not None:
            counter.timer.join()  # type: ignore[union-attr]
    finally:
        counter.close()

    f(x)
    assert counter.asdict()["jitted"] == ENOUGH["jitted"]


def test_what_the_host_does_between_two_reads_is_noted_within_a_window() -> None:
    f, x = jax.jit(lambda x: x + 1), jnp.ones(())
    counter = CallCounter(60.0)
    try:
        for _ in range(5):
            float(f(x))
    finally:
        counter.close()

    (line,) = counter.asdict()["reads"]
    assert (line["by"], line["count"], line["steps"]) == ("__float__", 5, 2)
    assert 0 < line["gain_s"] <= line["stepped_s"]
