"""What is said about a measurement, in which order and in which words. No renderer, no JAX."""

from __future__ import annotations

import os
import re
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
    Opaque,
    Ranks,
    RankTimes,
    Remark,
    Samples,
    Stages,
    Transfer,
    WorkPerCall,
)
from benchax.reporting import terminal
from benchax.reporting.document import Document, Facts, Heading, Paragraph, TextRow
from benchax.reporting.measurement import answers, document, list_measurements, overview, sections
from benchax.reporting.tables import environment, spread, stored_grid
from benchax.store.base import row_of
from benchax.units import seconds

MIB = 2**20


def rows(m: Measurement) -> dict[str, TextRow]:
    """The rows of all sections by their labels."""
    return {row.label: row for section in sections(m) for row in section.rows}


def absent(found: Document) -> tuple[str, dict[str, str]]:
    """(the line that names what was not measured, the reasons that are given)"""
    line = next((block.text for block in found.blocks if isinstance(block, Paragraph)), "")
    given = [section for block in found.blocks if isinstance(block, Facts) for section in block.sections]
    reasons = {row.label: row.value for s in given if s.title.startswith("not measured") for row in s.rows}
    return line, reasons


def labels(m: Measurement) -> dict[str, list[str]]:
    return {section.title: [row.label for row in section.rows] for section in sections(m)}


def with_samples(*samples: Samples) -> Measurement:
    return replace(measured(), samples=samples)


# ---- one measurement --------------------------------------------------------------------------------------------


def test_everything_that_was_measured_has_a_row() -> None:
    assert labels(RICH) == {
        "once": [
            "transfer in",
            "trace",
            "lower",
            "compile",
            "first run",
            "first result",
            "dispatch",
            "call floor",
            "transfer out",
        ],
        "every call": ["wall", "loop"],
        "devices": ["2 devices", "cpu:0"],
        "processes": ["2 ranks", "start skew", "first to end", "rank 0", "rank 1"],
        "memory": ["planned peak", "captured", "compiled call", "eager call"],
        "work": ["operations", "bytes accessed"],
    }


def test_a_rank_that_ended_before_the_last_one_began_has_no_time() -> None:
    early = replace(RICH, ranks=Ranks((RankTimes(0, "h", (-1e-3,)), RankTimes(1, "h", (2e-6,))), 1, (2e-3,)))

    shown = rows(early)

    assert (shown["first to end"].value, shown["rank 0"].value) == ("not measured", "not measured")
    assert shown["first to end"].detail.startswith("because it mostly ended before the last rank had begun")
    assert shown["rank 1"].value == "2.00 µs"


def test_sections_without_rows_are_left_out() -> None:
    assert labels(measured()) == {"every call": ["wall"]}


# ---- the answer -------------------------------------------------------------------------------------------------


def text_of(m: Measurement, width: int = 80) -> list[str]:
    return terminal.to_text(document(m), width).splitlines()


def test_the_first_lines_are_the_time_the_first_result_memory_and_the_check() -> None:
    m = replace(
        with_samples(
            Samples("in_graph", 8, (4e-3,) * 7, answers="inside a program"),
            Samples("wall", 1, (6e-4,) * 7, answers="one call"),
            Samples("loop", 8, (4e-3,) * 7),
        ),
        case=CaseId("sort"),
        signature="f32[1000]",
        environment=replace(HOST, backend="cpu", jax="0.10.2"),
        stages=Stages(trace_s=1e-3, lower_s=1e-3, compile_s=0.04, first_run_s=1e-3),
        memory=Memory(compiled_rise_bytes=4 * MIB),
        numerics=Numerics("eager", True, max_abs=0.0, max_rel=0.0),
    )

    assert text_of(m)[:7] == [
        "sort     500 µs  (500–500)  in_graph: inside a program · one process only",
        "         600 µs  (600–600)  wall: one call · one process only",
        "        43.0 ms  first result; 40.0 ms of it to compile",
        "      +4.00 MiB  memory during a call",
        "        checked  identical to the eager result",
        "cpu · jax 0.10.2 · f32[1000]",
        "",
    ]


def test_what_a_call_takes_comes_with_what_a_program_takes_whichever_is_the_headline() -> None:
    wall, loop = Samples("wall", 1, (2.0,)), Samples("loop", 1, (1.0,))

    assert [row.value for row in answers(with_samples(wall, loop))] == ["2.00 s", "1.00 s"]
    assert [row.value for row in answers(with_samples(loop, wall))] == ["1.00 s", "2.00 s"]


def test_a_long_title_is_alone_on_its_line() -> None:
    lines = text_of(replace(measured(), case=CaseId("a_function_with_a_name", (("of_many", "parameters"),))))

    assert lines[:2] == ["a_function_with_a_name[of_many=parameters]", "  2.00 s  wall · one process only"]


def test_processes_that_agree_are_counted_and_the_others_named() -> None:
    groups = [(value,) * 6 for value in (5.0e-3, 5.1e-3, 5.1e-3, 5.2e-3, 6.4e-3)]

    first = next(iter(answers(in_processes(*groups))))

    assert first.value == "5.10 ms"
    assert first.detail.endswith("wall · 4 of 5 processes agree; one was slow (6.40 ms)")


def test_a_failure_is_the_first_line_with_its_message_and_advice() -> None:
    failure = Failure("out_of_memory", "first run", "no 3 TiB here", "buy memory")

    failed, advice = answers(replace(measured(), failure=failure))

    assert failed == TextRow("", "out of memory", "in first run: no 3 TiB here", "bad")
    assert advice == TextRow("", "", "buy memory")


@pytest.mark.parametrize(
    ("numerics", "row"),
    [
        (
            Numerics("eager", True, max_abs=0.0, max_rel=0.0),
            TextRow("", "checked", "identical to the eager result", "good"),
        ),
        (
            Numerics("float64", True, max_abs=1e-7, max_rel=2e-7),
            TextRow(
                "",
                "checked",
                "agrees with a float64 reference; largest difference 2.0e-07 of the largest value",
                "good",
            ),
        ),
        (Numerics("eager", False, why="out[0] differs by 3.5"), TextRow("", "WRONG", "out[0] differs by 3.5", "bad")),
    ],
)
def test_the_result_is_judged(numerics: Numerics, row: TextRow) -> None:
    assert [*answers(replace(measured(), numerics=numerics))][-1] == row


def test_a_result_that_could_not_be_checked_says_why_at_the_top_only() -> None:
    m = replace(measured(), not_measured=(Absent("numerics", "the eager call failed"),))

    assert [*answers(m)][-1] == TextRow("", "unchecked", "because the eager call failed", "faint")
    assert absent(document(m)) == ("", {})
    assert absent(document(m, is_full=True)) == ("", {"the check of the result": "the eager call failed"})


# ---- what was not measured --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "label"),
    [
        ("stages.transfer_in", "transfer in"),
        ("stages.trace_s", "trace"),
        ("stages.dispatch_s", "dispatch"),
        ("samples.in_graph", "in_graph"),
        ("samples.processes", "other processes"),
        ("samples", "run time"),
        ("memory.plan", "planned peak"),
        ("memory.compiled_rise_bytes", "memory during a call"),
        ("cost", "operations"),
        ("work", "work"),
    ],
)
def test_what_was_not_measured_is_named_and_the_full_form_says_why(what: str, label: str) -> None:
    m = replace(measured(), not_measured=(Absent(what, "the moon was full"),))

    assert absent(document(m)) == (f"not measured: {label} (-v says why)", {})
    assert absent(document(m, is_full=True)) == ("", {label: "the moon was full"})


def test_everything_that_was_not_measured_is_one_line() -> None:
    what = ("samples.loop", "stages.transfer_in", "memory.eager_rise_bytes")
    m = replace(measured(), not_measured=tuple(Absent(each, "a reason", is_by_choice=True) for each in what))

    line, _ = absent(document(m))

    assert line == "not measured: loop, transfer in, memory during an eager call (-v says why)"


def test_the_reason_is_given_for_a_timer_that_the_user_named() -> None:
    m = replace(
        measured(),
        options=replace(measured().options, timer="wall, loop"),
        not_measured=(Absent("samples.loop", "the call is long"), Absent("cost", "XLA does not say")),
    )

    assert absent(document(m)) == ("not measured: operations (-v says why)", {"loop": "the call is long"})


def test_what_is_no_number_is_in_the_full_form_only() -> None:
    m = replace(measured(), not_measured=(Absent("program", "the row is not stored"),))

    assert absent(document(m)) == ("", {})
    assert absent(document(m, is_full=True)) == ("", {"program": "the row is not stored"})


def test_below_a_table_each_name_comes_once_and_the_full_form_has_the_reasons_of_each_case() -> None:
    loop = (Absent("samples.loop", "a reason"),)
    listed = [replace(measured(name), not_measured=loop) for name in ("f", "g")]

    unchecked = replace(measured(), not_measured=(Absent("numerics", "a reason"),))
    assert "the check of the result" in absent(list_measurements([unchecked, measured("g")]))[0]
    assert absent(list_measurements(listed))[0] == "not measured: loop (-v says why)"
    text = terminal.to_text(list_measurements(listed, is_full=True))
    assert "not measured of f\n  loop  a reason\n\nnot measured of g\n  loop  a reason" in text


# ---- the details ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stages", "label", "row"),
    [
        (Stages(trace_s=0.002), "trace", TextRow("trace", "2.00 ms")),
        (Stages(trace_s=0.002, cold="process"), "trace", TextRow("trace", "2.00 ms", "in a cold process")),
        (
            Stages(trace_s=0.002, cold="function"),
            "trace",
            TextRow("trace", "2.00 ms", "in a new function in a warm process"),
        ),
        (Stages(compile_s=0.25, cache="off"), "compile", TextRow("compile", "250 ms", "persistent cache off")),
        (
            Stages(compile_s=0.25, cache="hit"),
            "compile",
            TextRow("compile", "250 ms", "read from the persistent cache"),
        ),
        (Stages(dispatch_s=8e-6), "dispatch", TextRow("dispatch", "8.00 µs", "until a warm call returns")),
    ],
)
def test_a_stage_says_how_long_and_under_which_conditions(stages: Stages, label: str, row: TextRow) -> None:
    assert rows(replace(measured(), stages=stages))[label] == row


def test_a_copy_has_a_bandwidth() -> None:
    stages = Stages(transfer_in=Transfer(4 * MIB, (2e-3, 1e-3, 3e-3), is_zero_copy=False))

    row = rows(replace(measured(), stages=stages))["transfer in"]

    assert row == TextRow("transfer in", "2.00 ms", "4.00 MiB, copied at 2.10 GB/s")


def test_a_view_has_no_bandwidth() -> None:
    stages = Stages(transfer_out=Transfer(4 * MIB, (1e-6,), is_zero_copy=True))

    row = rows(replace(measured(), stages=stages))["transfer out"]

    assert row == TextRow("transfer out", "1.00 µs", "4.00 MiB, zero-copy: a view, nothing moved")


def test_samples_come_with_interval_scope_and_number() -> None:
    samples = Samples("wall", 1, (1.0e-4, 1.1e-4, 1.2e-4, 1.3e-4, 1.4e-4, 1.5e-4), stop="precise")

    row = rows(with_samples(samples))["wall"]

    assert row == TextRow("wall", "125 µs", "(100–150) 95 % interval for this process\n6 samples")


def test_samples_of_several_calls_say_how_many_and_why_they_ended() -> None:
    wall = Samples("wall", 1, (1e-4,) * 6)
    samples = Samples(
        "pipelined", 64, (6.4e-3,) * 6, disturbed=(True, False) * 3, regime="thunks", stop="time",
        answers="calls queued, one wait at the end",
    )  # fmt: skip

    row = rows(with_samples(wall, samples))["pipelined"]

    assert row.value == "100 µs"
    assert row.detail.split("\n") == [
        "(100–100) 95 % interval for this process · calls queued, one wait at the end · thunks",
        "6 × 64 samples, out of time, 3 disturbed",
    ]


def in_processes(*groups: tuple[float, ...]) -> Measurement:
    return with_samples(*(Samples("wall", 1, group, process=i) for i, group in enumerate(groups)))


def test_samples_of_several_processes_are_one_row_whose_interval_is_between_them() -> None:
    m = in_processes((1.00e-4,) * 6, (1.02e-4,) * 6, (1.04e-4,) * 6)

    row = rows(m)["wall"]

    s = m.summary("wall")
    assert row.value == seconds(s.median_s)
    assert row.detail.split("\n") == [
        f"{spread(s.median_s, s.low_s, s.high_s)} 95 % interval for a later run", "18 samples"
    ]  # fmt: skip
    assert [label for label in rows(m) if label == "wall"] == ["wall"]


def test_what_is_unstable_keeps_its_median_with_a_mark_and_the_reason() -> None:
    m = in_processes((1e-4,) * 6, (1e-4,) * 6, (4e-4,) * 6)

    assert next(iter(answers(m))).detail.endswith("2 of 3 processes agree; one was slow (400 µs)")
    assert re.fullmatch(r"100 µs \(.+, unstable\)", overview([m]).lines[0][1])


def test_too_few_samples_have_no_interval_and_say_so() -> None:
    row = rows(with_samples(Samples("wall", 1, (1e-4, 1e-4))))["wall"]

    assert row.detail.startswith("no interval: too few readings")


def test_the_plan_of_the_memory_names_its_parts() -> None:
    memory = Memory(
        argument_bytes=4 * MIB,
        output_bytes=2 * MIB,
        temp_bytes=MIB,
        alias_bytes=0,
        predicted_peak_bytes=7 * MIB,
        compiler_peak_bytes=6 * MIB,
    )

    row = rows(replace(measured(), memory=memory))["planned peak"]

    assert row.value == "7.00 MiB"
    assert row.detail == ("arguments 4.00 MiB, outputs 2.00 MiB, temporaries 1.00 MiB; JAX's own figure is 6.00 MiB")


def test_observed_memory_names_its_method() -> None:
    memory = Memory(compiled_rise_bytes=3 * MIB, method="VmHWM")

    row = rows(replace(measured(), memory=memory))["compiled call"]

    assert row == TextRow("compiled call", "+3.00 MiB", "observed above what was there before (VmHWM)")


@pytest.mark.parametrize(
    ("timers", "cost", "detail"),
    [
        (("wall", "loop"), Cost(flops=2e9), "1.00 GFLOP/s by the loop timer"),
        (("wall", "in_graph"), Cost(flops=2e9), "1.00 GFLOP/s by the in_graph timer"),
        (("wall",), Cost(flops=2e9), "1.00 GFLOP/s by the wall timer"),
        ((), Cost(flops=2e9), "XLA's count"),
        (("loop",), Cost(flops=2e9, has_loops=True), "XLA's count"),
    ],
)
def test_operations_have_a_rate_where_both_numbers_hold(timers: tuple[str, ...], cost: Cost, detail: str) -> None:
    """XLA counts the body of a loop once: a rate made of that would be wrong."""
    samples = tuple(Samples(timer, 1, (2.0,) * 6) for timer in timers)

    row = rows(replace(measured(), samples=samples, cost=cost))["operations"]

    assert row == TextRow("operations", "2.00 GFLOP", detail)


@pytest.mark.parametrize(
    ("facts", "where"),
    [
        (
            {"backend": "cpu", "device_kind": "cpu", "processor": "AMD EPYC", "jax": "0.10.2"},
            "cpu · AMD EPYC · jax 0.10.2",
        ),
        (
            {"backend": "gpu", "device_kind": "H200", "processor": "AMD EPYC", "jax": "0.10.2"},
            "gpu · H200 · jax 0.10.2",
        ),
        ({}, ""),
    ],
)
def test_the_heading_says_what_it_ran_on(facts: dict[str, Any], where: str) -> None:
    m = replace(measured("fft", n=8), environment=replace(HOST, **facts))

    heading = document(m).blocks[0]
    assert isinstance(heading, Heading)
    assert (heading.text, heading.below) == ("fft[n=8]", (where,) if where else ())


def test_what_a_call_gets_done_is_a_rate_with_its_interval() -> None:
    s = Samples("wall", 1, (1.0, 1.0, 1.0, 1.0, 1.0, 1.25))
    m = replace(with_samples(s), work=WorkPerCall({"tokens": 4096.0, "bytes": 1e9}, 4e9))

    rows = next(section.rows for section in sections(m) if section.title == "work")

    assert rows[0] == TextRow("tokens", "4.10 k tokens/s", "95 % 3.28 k – 4.10 k by the wall timer; 4.10 k in a call")
    assert rows[1].value == "1.00 GB/s"
    assert "25 % of the 4.00 GB/s that this machine reached" in rows[1].detail


def test_without_a_time_there_is_no_rate_and_the_run_time_is_named() -> None:
    m = replace(
        measured(), samples=(), work=WorkPerCall({"tokens": 8.0}), not_measured=(Absent("samples", "not asked for"),)
    )

    assert labels(m) == {}
    assert absent(document(m))[0] == "not measured: run time (-v says why)"


def test_the_overview_has_a_column_for_each_kind_of_work() -> None:
    grid = overview([replace(measured("f"), work=WorkPerCall({"tokens": 8.0})), measured("g")])

    assert grid.names == ("case", "wall", "tokens/s")
    assert grid.lines == (("f", "2.00 s", "4"), ("g", "2.00 s", ""))


# ---- many measurements ------------------------------------------------------------------------------------------


def test_the_overview_leaves_out_columns_that_nobody_fills() -> None:
    grid = overview([measured("f"), measured("g")])

    assert grid.names == ("case", "wall")
    assert grid.lines == (("f", "2.00 s"), ("g", "2.00 s"))


def test_the_overview_has_a_column_that_one_row_fills() -> None:
    full = Measurement(
        CaseId("g"), HOST, measured().options, "run", "2025", stages=Stages(compile_s=0.25),
        samples=(Samples("wall", 1, (1.0, 1.0, 1.0, 1.0, 1.0, 1.2)), Samples("loop", 1, (0.5,))),
        memory=Memory(argument_bytes=MIB, compiled_rise_bytes=MIB),
        remarks=(Remark("busy", "warning", "…"), Remark("not-jitted", "info", "…")),
    )  # fmt: skip

    grid = overview([measured("f"), full])

    assert grid.names == ("case", "wall", "loop", "compile", "memory", "remarks")
    assert grid.lines[0] == ("f", "2.00 s", "", "", "", "")
    assert grid.lines[1] == ("g", "1.00 s (1.00–1.20)", "500 ms", "250 ms", "+1.00 MiB", "busy")


def test_every_measured_case_has_a_time_in_the_overview_whatever_its_timer() -> None:
    rows = [with_samples(Samples(timer, 1, (1e-3,))) for timer in ("pipelined", "device", "wall")]

    for line in overview([*rows, replace(measured("h"), samples=(), failure=Failure("error", "trace", "…"))]).lines[:3]:
        assert "1.00 ms" in line
    assert overview([replace(measured("h"), samples=(), failure=Failure("error", "trace", "…"))]).lines == (
        ("h", "error", "in trace"),
    )


def test_failures_and_wrong_results_stand_out_in_the_overview() -> None:
    wrong = replace(measured("g"), remarks=(Remark("wrong-result", "error", "…"),))
    failed = replace(measured("h"), failure=Failure("wrong_output", "trace", "…"))

    grid = overview([measured("f"), wrong, failed])

    assert [row[0].style for row in grid.rows] == ["", "bad", "bad"]
    assert grid.lines[2] == ("h", "wrong output", "in trace")


def test_stored_rows_show_what_was_measured_where() -> None:
    m = replace(
        measured("f", elapsed_s=(1.0, 1.0, 1.0, 1.0, 1.0, 1.2), n=8),
        environment=replace(HOST, commit="0123456789abcdef", is_dirty=True),
        stages=Stages(compile_s=0.25),
        started_at="2025-11-21T01:35:59.123456+00:00",
    )

    grid = stored_grid([row_of(m, 7)])

    assert dict(zip(grid.names, grid.lines[0], strict=True)) == {
        "id": "7",
        "when (UTC)": "2025-11-21 01:35",
        "case": "f[n=8]",
        "timer": "wall",
        "time": "1.00 s (1.00–1.20)",
        "compile": "250 ms",
        "commit": "01234567+",
    }


def test_a_stored_failure_shows_its_kind_in_place_of_numbers() -> None:
    """Also where some had been taken: they are not those of a whole measurement."""
    m = replace(measured(commit=None), failure=Failure("out_of_memory", "memory", "…"))

    grid = stored_grid([row_of(m, 7)])

    assert grid.lines[0][2:] == ("f", "out of memory", "", "", "")
    assert [row[0].style for row in grid.rows] == ["bad"]


def test_a_row_of_a_table_is_one_line_whatever_the_name() -> None:
    m = measured("two\nlines\r\nand more")
    failed = replace(m, failure=Failure("error", "trace", "…"))

    assert stored_grid([row_of(m, 7)]).lines[0][2] == "two lines and more"
    assert [line[0] for line in overview([m, failed]).lines] == ["two lines and more"] * 2


def test_the_environment_says_what_is_unknown() -> None:
    section = environment(
        replace(
            HOST,
            memory_bytes=16 * 2**30,
            virtual_machine=False,
            affinity=(0, 2),
            config={"jax_enable_x64": False, "jax_a": 1},
        )
    )
    facts = {row.label: row.value for row in section.rows}

    assert facts["host"] == "host"
    assert facts["memory bytes"] == "16.0 GiB"
    assert facts["virtual machine"] == "no"
    assert facts["affinity"] == "0, 2"
    assert facts["config"] == "jax_a=1\njax_enable_x64=False"
    assert facts["flags"] == "none set"
    assert facts["governor"] == "unknown"


def test_the_environment_ends_with_what_makes_rows_comparable() -> None:
    last = environment(HOST).rows[-1]

    assert last == TextRow("fingerprint", HOST.fingerprint, "rows with the same one may be compared")


def test_parameters_of_any_kind_have_a_label() -> None:
    m = replace(
        measured(), case=CaseId("f", (("shape", (3, (4,))), ("to", Opaque("Sharding", "P('x')"))), "eager", "a b")
    )

    title = document(m).blocks[0]
    assert isinstance(title, Heading)
    assert title.text == "f[shape=(3, (4,)), to=P('x')] eager #a b"


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
