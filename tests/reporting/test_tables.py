"""What is said about a measurement, in which order and in which words. No renderer, no JAX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from measurement_strategies import HOST, RICH, measured
from measurement_strategies import document as document_of_format

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
from benchax.reporting.measurement import document_of_statistics as statistics_document
from benchax.reporting.tables import (
    agreement,
    describe_rates,
    each_once,
    environment,
    estimate,
    share_remarks,
    stored_grid,
)
from benchax.reporting.terminal import to_text
from benchax.results.inspection import Peaks
from benchax.stats.summary import Summary, summarize_run
from benchax.store.schema import row_of

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
    "samples that were disturbed are counted in all processes": made(
        *(Samples("wall", 1, (1e-4,) * 3, (True, i == 1, False), process=i) for i in range(2))
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

    grid = stored_grid([row_of(whole)._replace(id=7), row_of(failed)._replace(id=8)])

    assert terminal.to_text(Document((grid,))) == snapshot
    assert [row[0].style for row in grid.rows] == ["", "bad"]


def test_a_stored_row_is_one_line_at_80_columns_and_a_name_that_is_cut_keeps_its_parameters() -> None:
    name = "benchmark_matrix_multiplication_of_large"
    row = replace(measured(name), started_at="2025-11-21T01:35:59+00:00")
    cut = replace(row, case=CaseId(f"{name}_matrices", (("n", 512), ("dtype", "bf16"))))

    whole, cut_lines = (
        terminal.to_text(Document((stored_grid([row_of(m)._replace(id=123456)]),)), 80).splitlines() for m in (row, cut)
    )

    assert whole[1:] == [f"123456  11-21 01:35  {name}  2.00 s", "Hidden at this width: commit."]
    assert cut_lines[1].endswith("s[n=512, dtype=bf16]  2.00 s")


def test_the_environment_says_what_is_unknown_and_ends_with_what_makes_rows_comparable(snapshot: Any) -> None:
    known = replace(
        HOST, memory_bytes=16 * 2**30, virtual_machine=False, affinity=(0, 2),
        config={"jax_enable_x64": False, "jax_a": 1},
    )  # fmt: skip

    assert terminal.to_text(Document((Facts((environment(known),), "words"),)), 100) == snapshot


def summary(low: float | None, median: float, high: float | None, **more: object) -> Summary:
    values = {"q25_s": median, "q75_s": median, "min_s": median, "max_s": median, "outliers": 0, "n": 100}
    return Summary(**{"median_s": median, "low_s": low, "high_s": high, **values, **more})  # type: ignore[arg-type]


def of_processes(*medians_s: float) -> Summary:
    return summarize_run([(median_s,) * 6 for median_s in medians_s])


ESTIMATES = (
    summary(5.08e-3, 5.16e-3, 5.31e-3),
    # Both ends are in the unit of the median.
    summary(0.95e-3, 0.98e-3, 1.02e-3),
    # With more digits, if the ends would read the same.
    summary(1.2341e-3, 1.2342e-3, 1.2344e-3),
    summary(None, 1e-6, None),
    summary(0.9e-3, 1.3e-3, 6.34e-3),
    summary(-1e-6, 1e-6, 2e-6),
    summary(0.0, 0.0, 0.0),
    None,
)
PROCESSES = (
    (1.0, 1.0, 1.05), (5.0e-3, 5.1e-3, 5.1e-3, 5.2e-3, 6.4e-3), (4.0e-3, 5.1e-3, 5.1e-3, 5.2e-3, 5.1e-3),
    (1.0, 1.0, 1.0, 1.5, 1.6), (0.5, 1.0, 1.0, 1.0, 2.0), (1.0, 2.0, 4.0),
)  # fmt: skip


def test_a_median_is_followed_by_its_interval(snapshot: Any) -> None:
    assert [estimate(each) for each in ESTIMATES] == snapshot


def test_processes_that_agree_are_counted_and_the_others_are_named(snapshot: Any) -> None:
    assert {str(medians_s): agreement(of_processes(*medians_s)) for medians_s in PROCESSES} == snapshot


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"n": 7}, "7 readings are few"),
        ({"q25_s": 1e-6, "q75_s": 9e-6}, "the readings scatter"),
        ({}, "the readings drift or have two modes"),
    ],
)
def test_one_process_says_that_it_is_one_and_why_it_is_unstable(facts: dict[str, object], why: str) -> None:
    assert agreement(summary(0.9e-6, 1e-6, 1.1e-6, **facts)) == "one process only"
    assert agreement(summary(1e-6, 2e-6, 9e-6, **facts)) == f"one process only, {why}"


@pytest.mark.parametrize(
    ("median_s", "text"),
    [
        (1.0, "as in 61 earlier runs"),
        (2.0, "slower than all of 61 earlier runs ("),
        (0.5, "faster than all of 61 earlier runs ("),
    ],
)
def test_a_run_is_compared_with_the_range_of_earlier_ones_and_not_with_the_newest(median_s: float, text: str) -> None:
    earlier = [*[1.0] * 60, 0.9]

    assert agreement(summarize_run([(median_s,) * 6], earlier)).startswith(text)


def test_each_timer_has_a_line_of_statistics_and_a_row_without_samples_says_so(snapshot: Any) -> None:
    row = made(Samples("wall", 1, (1e-3, 2e-3, 3e-3)), Samples("loop", 1, (-1e-6, 4e-6, 5e-6, 6e-6)))

    assert to_text(statistics_document(row)) == snapshot
    assert "has no samples" in to_text(statistics_document(made(samples=())))


def test_a_file_of_pytest_benchmark_holds_no_time_below_zero() -> None:
    row = replace(measured(), samples=(Samples("loop", 1, (-1e-6, 4e-6, 5e-6, 6e-6)),))

    (found,) = document_of_format("pytest-benchmark", (row,))["benchmarks"]

    assert found["stats"]["min"] == 4e-6
    assert found["stats"]["data"] == [4e-6, 5e-6, 6e-6]
    assert found["extra_info"]["readings_not_above_0"] == 1


IMPURE = Remark("impure", "warning", "it prints")


def busy(share: int) -> Remark:
    return Remark("busy", "warning", f"other processes used {share} %")


OTHER = Remark("impure", "warning", "it reads a clock")


def test_remarks_that_are_shared_are_shown_once_and_the_busy_machine_whatever_its_numbers() -> None:
    assert each_once([IMPURE, busy(40), OTHER, IMPURE, busy(60)]) == [IMPURE, busy(40), OTHER]


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([40] * 20, "busy (all 20 cases): other processes used 40 %"),
        (range(40, 60), "busy (all 20 cases), for example f0: other processes used 40 %"),
        ([40] * 18, "busy (18 of 20 cases, not f18 and f19): other processes used 40 %"),
        ([40] * 12, "busy (12 of 20 cases): other processes used 40 %"),
    ],
    ids=["all", "numbers of one case", "most", "many exceptions"],
)
def test_what_most_have_is_said_once_with_their_number(shares: Sequence[int], message: str) -> None:
    having = len(shares)
    shared = share_remarks({f"f{i}": [busy(shares[i])] if i < having else [] for i in range(20)})

    assert [r.message for r in shared.common] == [message]
    assert shared.universal == ({"busy"} if having == 20 else set())
    assert not any(shared.own.values())


@pytest.mark.parametrize("having", [1, 2, 10])
def test_what_no_more_than_half_have_stays_with_them(having: int) -> None:
    by_name = {f"f{i}": [IMPURE] if i < having else [] for i in range(20)}

    shared = share_remarks(by_name)

    assert shared.common == ()
    assert {name: list(own) for name, own in shared.own.items()} == by_name


def test_errors_and_what_is_about_one_case_stay_with_each() -> None:
    wrong, again = Remark("wrong", "error", "differs"), Remark("recompiled", "warning", "of x")
    by_name = {"f": [wrong, again], "g": [wrong, again]}

    shared = share_remarks(by_name, apart=["recompiled"])

    assert (shared.common, shared.own) == ((), {"f": (wrong, again), "g": (wrong, again)})


def test_nothing_is_lost_of_a_case_that_has_two_messages_of_one_code() -> None:
    shared = share_remarks({"f": [IMPURE, OTHER], "g": [IMPURE]})

    assert (shared.common, shared.own["f"]) == ((), (IMPURE, OTHER))


def test_rates_come_with_what_they_were_reached_by_and_missing_ones_are_left_out() -> None:
    assert describe_rates(Peaks(2e10, 2**27, None, 2**18, {"f32": 1e11, "bf16": 2e11})) == (
        "20.0 GB/s in memory (128 MiB), 100 GFLOP/s by matmuls of f32, 200 GFLOP/s by matmuls of bf16, "
        "the highest measured"
    )
