"""Device time of each run: against made traces, where every answer is known, and against real ones."""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax_versions import tells_runs

from benchax.clock import handlers, tier
from benchax.errors import NotMeasured
from benchax.profiling import events
from benchax.profiling.events import NUMBER, TEXT, Plane, Space, Stats, TraceLine
from benchax.profiling.runs import STATS, ProgramRun, device_runs
from benchax.profiling.session import session

Event = tuple[str, int, int, dict[str, int]]
TEXTS = [*STATS, "an operation"]


def line(*made: Event, name: str = "a thread") -> TraceLine:
    """A line of events (name, start, duration, stats); `hlo_op` is a text, whichever number is given."""
    names = list(dict.fromkeys(event[0] for event in made))
    stats = [(i, TEXTS.index(key), key, value) for i, event in enumerate(made) for key, value in event[3].items()]
    return TraceLine(
        name,
        dict(enumerate(names)),
        np.array([names.index(event[0]) for event in made]),
        np.array([event[1] for event in made]),
        np.array([event[2] for event in made]),
        Stats(
            np.array([s[0] for s in stats], np.int32),
            np.array([s[1] for s in stats], np.int32),
            np.array([TEXT if s[2] == "hlo_op" else NUMBER for s in stats], np.uint8),
            np.array([len(TEXTS) - 1 if s[2] == "hlo_op" else s[3] for s in stats], np.int64),
        ),
        {},
        TEXTS,
    )


def space(*lines: TraceLine, plane: str = "/host:CPU") -> Space:
    return Space((Plane(plane, lines, {}, {}, {}, {}),), (), (), (), TEXTS)


def op(run: int, start: int, duration: int, flow: int) -> Event:
    return "an operation", start, duration, {"hlo_op": 0, "run_id": run, "_p": flow}


def end(flow: int, at: int) -> Event:
    return "end: an operation", at, 1, {"_c": flow}


def busy_ps(runs: list[ProgramRun]) -> list[int]:
    return [round(run.busy_s * 1e12) for run in runs]


def test_operations_of_a_run_are_united_whatever_thread_they_ran_on() -> None:
    one = line(op(7, 0, 100, 1), op(7, 200, 100, 2), end(1, 100), end(2, 300))
    other = line(op(7, 50, 100, 3), end(3, 150))

    (run,) = device_runs(space(one, other))

    assert (busy_ps([run]), run.start_ps, run.outer, run.inner) == ([250], 0, 2, 1)


def test_the_body_of_a_loop_counts_once() -> None:
    loop = [op(7, 0, 1000, 1), op(7, 100, 300, 2), op(7, 500, 300, 3)]

    (run,) = device_runs(space(line(*loop, end(1, 1000), end(2, 400), end(3, 800))))

    assert (busy_ps([run]), run.outer, run.inner) == ([1000], 1, 2)


def test_an_operation_that_was_handed_over_ends_with_its_marker() -> None:
    """Its own event ends when it has been handed over; the marker may stand on another thread."""
    runs = device_runs(space(line(op(7, 0, 100, 1)), line(end(1, 870))))

    assert busy_ps(runs) == [870]


def test_a_run_whose_last_marker_is_missing_is_not_whole() -> None:
    runs = device_runs(space(line(op(7, 0, 100, 1), op(8, 500, 100, 2)), line(end(1, 100))))

    assert [run.is_whole for run in runs] == [True, False]


def test_runs_come_in_the_order_of_their_starts() -> None:
    """Numbers of runs wrap around to negative ones."""
    numbered = [op(2**31 - 1, 0, 1, 1), op(-(2**31), 10, 2, 2), op(-5, 20, 3, 3)]

    runs = device_runs(space(line(*numbered, end(1, 1), end(2, 12), end(3, 23))))

    assert busy_ps(runs) == [1, 2, 3]


def test_operations_without_the_number_of_their_run_are_refused() -> None:
    """As jax 0.6.2 writes them."""
    nameless = ("an operation", 0, 100, {"hlo_op": 0, "_p": 1})

    with pytest.raises(NotMeasured, match="does not say which run an operation belongs to"):
        device_runs(space(line(nameless, end(1, 100))))


def test_a_trace_without_operations_has_no_runs() -> None:
    assert device_runs(space(line(("PjitFunction(f)", 0, 100, {})))) == []


def test_a_tpu_tells_its_runs_itself() -> None:
    modules = [("jit_f(123)", 0, 40, {"run_id": 1}), ("jit_f(123)", 100, 60, {"run_id": 2})]

    lines = line(*modules, name="XLA Modules"), line(op(1, 0, 9, 1), name="XLA Ops")

    runs = device_runs(space(*lines, plane="/device:TPU:0"))

    assert busy_ps(runs) == [40, 60]
    assert all(run.is_whole for run in runs)


def recorded(fn: Any, *args: jax.Array, times: int = 20) -> tuple[list[ProgramRun], list[float]]:
    """(runs, seconds of each call with its wait)."""
    fn = jax.jit(fn)
    jax.block_until_ready(fn(*args))
    calls_s = []
    with session() as recording:
        for _ in range(times):
            start = perf_counter_ns()
            jax.block_until_ready(fn(*args))
            calls_s.append((perf_counter_ns() - start) / 1e9)
    return device_runs(events.read(recording.xspace, STATS)), calls_s


@pytest.mark.serial
@tells_runs
def test_a_real_run_of_known_duration_is_read_as_such() -> None:
    runs, calls_s = recorded(lambda x: handlers.spin(tier(), x * 2, 200_000), jnp.ones(4))

    assert len(runs) == 20
    assert 200e-6 <= min(run.busy_s for run in runs) < 210e-6  # the least of many: whatever disturbs, lengthens
    assert all(run.busy_s < call_s for run, call_s in zip(runs, calls_s, strict=True))
    assert {run.outer + run.inner for run in runs} == {2}


@pytest.mark.serial
@tells_runs
def test_a_real_product_that_is_handed_over_is_not_taken_for_its_handing_over() -> None:
    """On several threads it ends after its own event: without markers it would be a third of what it is."""
    a = jax.random.normal(jax.random.key(0), (512, 512))

    runs, calls_s = recorded(lambda a: a.T @ a, a)

    shares = sorted(run.busy_s / call_s for run, call_s in zip(runs, calls_s, strict=True))
    assert shares[-5] > 0.6  # a neighbour lengthens some calls, not all
