"""What is said about a measurement, in which order and in which words. No renderer, no JAX."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest
from measurement_strategies import HOST, RICH, measured

from benchax.model import (
    Absent,
    CaseId,
    Cost,
    Failure,
    Measurement,
    Memory,
    Numerics,
    Ranks,
    RankTimes,
    Remark,
    Samples,
    Stages,
    Transfer,
    WorkPerCall,
)
from benchax.reporting import terminal
from benchax.reporting.document import Document, Facts
from benchax.reporting.measurement import document, list_measurements, overview
from benchax.reporting.tables import environment, stored_grid
from benchax.store.base import row_of

MIB = 2**20
CALLS = Samples("wall", 1, (1e-4,) * 6)
UNEVEN = Samples("wall", 1, (1.0, 1.0, 1.0, 1.0, 1.0, 1.25))


def made(*samples: Samples, **changed: Any) -> Measurement:
    """With these samples, or those of `measured`."""
    return replace(measured(), **({"samples": samples} if samples else {}) | changed)


def in_processes(*groups: tuple[float, ...]) -> Measurement:
    return made(*(Samples("wall", 1, group, process=i) for i, group in enumerate(groups)))


def absent(*what: str, **more: Any) -> dict[str, Any]:
    return {"not_measured": tuple(Absent(each, "the moon was full", **more) for each in what)}


# ---- one measurement --------------------------------------------------------------------------------------------


ONE: dict[str, Measurement] = {
    "everything that was measured has a row": RICH,
    "a rank that ended before the last one began has no time": replace(
        RICH, failure=None, ranks=Ranks((RankTimes(0, "h", (-1e-3,)), RankTimes(1, "h", (2e-6,))), 1, (2e-3,))
    ),
    "the first lines are the time, the first result, memory, and the check": made(
        Samples("in_graph", 8, (4e-3,) * 7, answers="inside a program"),
        Samples("wall", 1, (6e-4,) * 7, answers="one call"),
        Samples("loop", 8, (4e-3,) * 7),
        case=CaseId("sort"),
        signature="f32[1000]",
        environment=replace(HOST, backend="cpu", jax="0.10.2"),
        stages=Stages(trace_s=1e-3, lower_s=1e-3, compile_s=0.04, first_run_s=1e-3),
        memory=Memory(compiled_rise_bytes=4 * MIB),
        numerics=Numerics("eager", True, max_abs=0.0, max_rel=0.0),
    ),
    "what a call takes comes with what a program takes": made(Samples("wall", 1, (2.0,)), Samples("loop", 1, (1.0,))),
    "what a program takes comes with what a call takes": made(Samples("loop", 1, (1.0,)), Samples("wall", 1, (2.0,))),
    "a long title is alone on its line": made(
        case=CaseId("a_function_with_a_name", (("of_many", "parameters"), ("of_any", (3, (4,)))), "eager", "a b")
    ),
    "processes that agree are counted and the others named": in_processes(
        *((value,) * 6 for value in (5.0e-3, 5.1e-3, 5.1e-3, 5.2e-3, 6.4e-3))
    ),
    "samples of several processes are one row": in_processes((1.00e-4,) * 6, (1.02e-4,) * 6, (1.04e-4,) * 6),
    "a failure is the first line with its message and advice": made(
        failure=Failure("out_of_memory", "first run", "no 3 TiB here", "buy memory")
    ),
    "a result with small differences": made(numerics=Numerics("float64", True, max_abs=1e-7, max_rel=2e-7)),
    "a wrong result": made(numerics=Numerics("eager", False, why="out[0] differs by 3.5")),
    "a result that could not be checked": made(**absent("numerics")),
    "stages in a cold process": made(stages=Stages(trace_s=0.002, compile_s=0.25, cache="off", cold="process")),
    "stages of a new function": made(stages=Stages(trace_s=0.002, compile_s=0.25, cache="hit", cold="function")),
    "stages of a warm call": made(stages=Stages(trace_s=0.002, dispatch_s=8e-6)),
    "a copy has a bandwidth and a view has none": made(
        stages=Stages(
            transfer_in=Transfer(4 * MIB, (2e-3, 1e-3, 3e-3), is_zero_copy=False),
            transfer_out=Transfer(4 * MIB, (1e-6,), is_zero_copy=True),
        )
    ),
    "samples have an interval, a scope, and a number": made(
        Samples("wall", 1, (1.0e-4, 1.1e-4, 1.2e-4, 1.3e-4, 1.4e-4, 1.5e-4), stop="precise")
    ),
    "samples of several calls say how many and why they ended": made(
        CALLS,
        Samples(
            "pipelined", 64, (6.4e-3,) * 6, disturbed=(True, False) * 3, regime="thunks", stop="time",
            answers="calls queued, one wait at the end",
        ),
    ),
    "too few samples have no interval": made(Samples("wall", 1, (1e-4, 1e-4))),
    "the plan of the memory names its parts": made(
        memory=Memory(
            argument_bytes=4 * MIB, output_bytes=2 * MIB, temp_bytes=MIB, alias_bytes=0, predicted_peak_bytes=7 * MIB,
            compiler_peak_bytes=6 * MIB,
        )
    ),
    "observed memory names its method": made(memory=Memory(compiled_rise_bytes=3 * MIB, method="VmHWM")),
    "a rate by the loop timer": made(CALLS, Samples("loop", 1, (2.0,) * 6), cost=Cost(flops=2e9)),
    "a rate by the in_graph timer": made(CALLS, Samples("in_graph", 1, (2.0,) * 6), cost=Cost(flops=2e9)),
    "a rate by the wall timer": made(CALLS, cost=Cost(flops=2e9)),
    # XLA counts the body of a loop once: a rate made of that would be wrong.
    "no rate of a loop": made(Samples("loop", 1, (2.0,) * 6), cost=Cost(flops=2e9, has_loops=True)),
    "no rate without a time": made(samples=(), cost=Cost(flops=2e9), **absent("samples")),
    "work is a rate with its interval": made(UNEVEN, work=WorkPerCall({"tokens": 4096.0, "bytes": 1e9}, 4e9)),
    "no rate of work without a time": made(samples=(), work=WorkPerCall({"tokens": 8.0}), **absent("samples")),
    "a processor is named on the CPU": made(
        environment=replace(HOST, backend="cpu", device_kind="cpu", processor="AMD EPYC", jax="0.10.2")
    ),
    "a GPU is named without the processor": made(
        environment=replace(HOST, backend="gpu", device_kind="H200", processor="AMD EPYC", jax="0.10.2")
    ),
    "what was not measured is named": made(
        **absent(
            "stages.transfer_in", "stages.trace_s", "stages.dispatch_s", "samples.in_graph", "samples.processes",
            "memory.plan", "memory.compiled_rise_bytes", "memory.eager_rise_bytes", "cost", "work",
        )
    ),
    "what was left out by choice is named": made(**absent("samples.loop", "stages.transfer_in", is_by_choice=True)),
    "the reason is given for a timer that the user named": made(
        options=replace(measured().options, timer="wall, loop"), **absent("samples.loop", "cost")
    ),
    "what is no number is in the full form only": made(**absent("program")),
}  # fmt: skip


@pytest.mark.parametrize("name", ONE)
def test_a_measurement_is_shown(name: str, snapshot: Any) -> None:
    assert terminal.to_text(document(ONE[name]), 100) == snapshot


@pytest.mark.parametrize("name", [name for name, m in ONE.items() if m.not_measured or m is RICH])
def test_the_full_form_says_why_something_was_not_measured(name: str, snapshot: Any) -> None:
    assert terminal.to_text(document(ONE[name], is_full=True), 100) == snapshot


# ---- many measurements ------------------------------------------------------------------------------------------


FULL = Measurement(
    CaseId("g"), HOST, measured().options, "run", "2025", stages=Stages(compile_s=0.25),
    samples=(Samples("wall", 1, (1.0, 1.0, 1.0, 1.0, 1.0, 1.2)), Samples("loop", 1, (0.5,))),
    memory=Memory(argument_bytes=MIB, compiled_rise_bytes=MIB),
    remarks=(Remark("busy", "warning", "…"), Remark("not-jitted", "info", "…")),
)  # fmt: skip
WRONG = replace(measured("g"), remarks=(Remark("wrong-result", "error", "…"),))
FAILED = replace(measured("h"), samples=(), failure=Failure("wrong_output", "trace", "…"))
MANY: dict[str, list[Measurement]] = {
    "columns without a value are left out": [measured("f"), measured("g")],
    "a column that one row fills": [measured("f"), FULL],
    "every case has a time, whatever its timer": [
        *(made(Samples(timer, 1, (1e-3,))) for timer in ("pipelined", "device", "wall")), FAILED
    ],
    "failures alone": [FAILED],
    "failures and wrong results": [measured("f"), WRONG, FAILED],
    "what is unstable keeps its median with a mark": [in_processes((1e-4,) * 6, (1e-4,) * 6, (4e-4,) * 6)],
    "a column for each kind of work": [replace(measured("f"), work=WorkPerCall({"tokens": 8.0})), measured("g")],
    "each name that was not measured comes once": [
        replace(measured("f"), **absent("samples.loop")), replace(measured("g"), **absent("samples.loop", "numerics"))
    ],
    "a row is one line whatever its name": [measured("two\nlines\r\nand more"), measured("f")],
}  # fmt: skip


@pytest.mark.parametrize("name", MANY)
def test_measurements_are_a_table(name: str, snapshot: Any) -> None:
    assert terminal.to_text(list_measurements(MANY[name])) == snapshot


def test_the_full_form_of_a_table_has_the_reasons_of_each_case(snapshot: Any) -> None:
    listed = MANY["each name that was not measured comes once"]

    assert terminal.to_text(list_measurements(listed, is_full=True)) == snapshot


def test_failures_and_wrong_results_are_red() -> None:
    assert [row[0].style for row in overview([measured("f"), WRONG, FAILED]).rows] == ["", "bad", "bad"]


def test_stored_rows_show_what_was_measured_where_and_failures_their_kind(snapshot: Any) -> None:
    whole = replace(
        measured("f", elapsed_s=(1.0, 1.0, 1.0, 1.0, 1.0, 1.2), n=8),
        environment=replace(HOST, commit="0123456789abcdef", is_dirty=True),
        stages=Stages(compile_s=0.25),
        started_at="2025-11-21T01:35:59.123456+00:00",
    )
    # Its numbers are not those of a whole measurement.
    failed = replace(measured("two\nlines", commit=None), failure=Failure("out_of_memory", "memory", "…"))

    grid = stored_grid([row_of(whole, 7), row_of(failed, 8)])

    assert terminal.to_text(Document((grid,))) == snapshot
    assert [row[0].style for row in grid.rows] == ["", "bad"]


def test_the_environment_says_what_is_unknown_and_ends_with_what_makes_rows_comparable(snapshot: Any) -> None:
    known = replace(
        HOST, memory_bytes=16 * 2**30, virtual_machine=False, affinity=(0, 2),
        config={"jax_enable_x64": False, "jax_a": 1},
    )  # fmt: skip

    assert terminal.to_text(Document((Facts((environment(known),)),)), 100) == snapshot


def test_reporting_works_where_there_is_no_jax() -> None:
    script = (
        "import sys; sys.modules['jax'] = sys.modules['jaxlib'] = None\n"
        "import benchax.reporting.display\n"
        "from measurement_strategies import RICH\n"
        "print(RICH); print(RICH._repr_html_())"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "utf-8"}

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=60, env=environment, encoding="utf-8"
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert "planned peak" in done.stdout
    assert "<div class='benchax'" in done.stdout
