"""What is noted of a program while it runs."""

from __future__ import annotations

import threading
from typing import Any

import jax
import jax.numpy as jnp
from jax_versions import shows_calls

from benchax.auditing.call_counter import ENOUGH, CallCounter
from benchax.auditing.recorded_functions import FunctionRecorder

NO_TIME_S = 1e-9


@shows_calls
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


@shows_calls
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


@shows_calls
def test_reads_between_which_nothing_is_called_are_one_wait() -> None:
    f, x = jax.jit(lambda x: (x + 1, x + 2, x + 3)), jnp.ones(())
    counter = CallCounter(60.0)
    try:
        for _ in range(5):
            [float(value) for value in f(x)]
    finally:
        counter.close()

    (line,) = counter.asdict()["reads"]
    assert (line["count"], line["steps"]) == (5, 2)


@shows_calls
def test_a_program_compiled_by_hand_is_counted_as_its_function() -> None:
    @jax.jit
    def step(state: Any, batch: Any) -> Any:
        return {"w": state["w"] + batch.sum()}

    recorder = FunctionRecorder()
    counter = CallCounter(60.0)
    try:
        state, batch = {"w": jnp.ones(3)}, jnp.ones(4)
        compiled = step.lower(state, batch).compile()
        for _ in range(3):
            state = compiled(state, batch)
    finally:
        counter.close()
        (recorded,) = recorder.close()

    lines = counter.notes.asdict()["lines"]
    assert [(line["function"], line["count"], line["in_turn"]) for line in lines] == [("step", 3, 3)]
    assert counter.notes.repeated(recorded.fun) == {1}
    assert counter.notes.called_at(recorded.fun).startswith("tests/auditing/test_call_counter.py:")
