"""Device time of each run: against made traces, where every answer is known, and against real ones.

The runs of a profile and those of the timer `device` are counted by one piece of code.
"""

from __future__ import annotations

from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax_versions import tells_runs
from xspace_by_hand import US, Event, op, plane, space

from benchax.clock import handlers, tier
from benchax.errors import NotMeasured
from benchax.profiling.events import read
from benchax.profiling.operations import STATS, ProgramRun, device_runs
from benchax.profiling.profile import session
from benchax.profiling.trace import profile_of


def runs_of(*lines: list[Event]) -> list[ProgramRun]:
    trace = space(plane("/host:CPU", {f"thread {i}": line for i, line in enumerate(lines)}))
    return device_runs(read(trace, STATS))


def part(run: int, start: int, duration: int, flow: int) -> Event:
    return op("an operation", start, duration, run_id=run, _p=flow)


def end(flow: int, at: int) -> Event:
    return Event("end: an operation", at, 1, {"_c": flow})


def busy_ps(runs: list[ProgramRun]) -> list[int]:
    return [round(run.busy_s * 1e12) for run in runs]


def test_operations_of_a_run_are_united_whatever_thread_they_ran_on() -> None:
    one = [part(7, 0, 100, 1), part(7, 200, 100, 2), end(1, 100), end(2, 300)]

    (run,) = runs_of(one, [part(7, 50, 100, 3), end(3, 150)])

    assert (busy_ps([run]), run.start_ps, run.outer, run.inner) == ([250], 0, 2, 1)


def test_the_body_of_a_loop_counts_once() -> None:
    loop = [part(7, 0, 1000, 1), part(7, 100, 300, 2), part(7, 500, 300, 3)]

    (run,) = runs_of([*loop, end(1, 1000), end(2, 400), end(3, 800)])

    assert (busy_ps([run]), run.outer, run.inner) == ([1000], 1, 2)


def test_a_run_whose_last_marker_is_missing_is_not_whole() -> None:
    runs = runs_of([part(7, 0, 100, 1), part(8, 500, 100, 2)], [end(1, 100)])

    assert [run.is_whole for run in runs] == [True, False]


def test_runs_come_in_the_order_of_their_starts() -> None:
    """Numbers of runs wrap around to negative ones."""
    numbered = [part(2**31 - 1, 0, 1, 1), part(-(2**31), 10, 2, 2), part(-5, 20, 3, 3)]

    assert busy_ps(runs_of([*numbered, end(1, 1), end(2, 12), end(3, 23)])) == [1, 2, 3]


def test_operations_without_the_number_of_their_run_are_refused() -> None:
    """As jax 0.6.2 writes them."""
    with pytest.raises(NotMeasured, match="does not say which run an operation belongs to"):
        runs_of([Event("an operation", 0, 100, {"hlo_op": "an operation", "_p": 1}), end(1, 100)])
    assert runs_of([Event("PjitFunction(f)", 0, 100)]) == []


def test_a_tpu_tells_its_runs_itself() -> None:
    modules = [Event("jit_f(123)", 0, 9 * US, {"run_id": 1}), Event("jit_f(123)", 20 * US, 8 * US, {"run_id": 2})]
    lines = {"XLA Modules": modules, "XLA Ops": [Event("%fusion.1", US, 3 * US)]}
    trace = space(plane("/device:TPU:0", lines))

    timed, p = device_runs(read(trace, STATS)), profile_of(trace)

    assert busy_ps(timed) == [9 * US, 8 * US]
    assert all(run.is_whole for run in timed)
    assert [(run.module, run.device, run.device_s) for run in p.runs] == [
        ("jit_f", "tpu:0", 9e-6),
        ("jit_f", "tpu:0", 8e-6),
    ]
    assert [op.name for op in p.ops] == ["%fusion.1"]


def test_the_timer_and_the_profile_agree() -> None:
    first = [op("while.1", 0, 2 * US, _p=5), op("dot.2", 7 * US, 4 * US, _p=6, run_id=2)]
    second = [op("sin.3", 8 * US, US, _p=7, run_id=2), Event("end: while.1", 6 * US, 1, {"_c": 5})]
    trace = space(plane("/host:CPU", {"a": first, "b": second}))

    timed, profiled = device_runs(read(trace, STATS)), profile_of(trace).runs

    assert [run.busy_s for run in timed] == [run.device_s for run in profiled] == [6e-6, 4e-6]
    assert [run.start_ps / 1e12 for run in timed] == [run.start_s for run in profiled]


def test_a_run_on_two_devices_is_one_run_and_two_in_the_profile() -> None:
    trace = space(plane("/host:CPU", {"a": [op("dot.1", 0, 2 * US), op("dot.1", US, 4 * US, device_ordinal=1)]}))

    timed, profiled = device_runs(read(trace, STATS)), profile_of(trace).runs

    assert [run.busy_s for run in timed] == [5e-6]
    assert [(run.device, run.device_s) for run in profiled] == [("cpu:0", 2e-6), ("cpu:1", 4e-6)]


def test_an_operation_without_a_marker_is_not_known_to_have_ended_and_not_called_open() -> None:
    """The timer asks for markers; a profile of a JAX that writes none is told as it is."""
    trace = space(plane("/host:CPU", {"a": [op("dot.1", 0, 2 * US)]}))

    assert [run.is_whole for run in device_runs(read(trace, STATS))] == [False]
    assert "open-calls" not in {remark.code for remark in profile_of(trace).remarks}


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
    return device_runs(read(recording.xspace, STATS)), calls_s


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
