"""The runs of a profile and those of the timer `device` are counted by one piece of code."""

from __future__ import annotations

from xspace_by_hand import Event, op, plane, space

from benchax.profiling.events import read
from benchax.profiling.runs import STATS, device_runs
from benchax.profiling.trace import profile_of

US = 10**6
"""Picoseconds."""


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


def test_a_tpu_tells_the_runs_of_a_profile_itself() -> None:
    modules = [Event("jit_f(123)", 0, 9 * US, {"run_id": 1}), Event("jit_f(123)", 20 * US, 8 * US, {"run_id": 2})]
    lines = {"XLA Modules": modules, "XLA Ops": [Event("%fusion.1", US, 3 * US)]}

    p = profile_of(space(plane("/device:TPU:0", lines)))

    assert [(run.module, run.device, run.device_s) for run in p.runs] == [
        ("jit_f", "tpu:0", 9e-6),
        ("jit_f", "tpu:0", 8e-6),
    ]
    assert [op.name for op in p.ops] == ["%fusion.1"]
