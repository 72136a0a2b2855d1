"""The table: its columns, its cells, and what is coloured."""

from __future__ import annotations

import math

import pytest
from csv_rows_by_hand import a_record, a_row

from benchax.reporting.document import TableCell
from pytest_jax_bench import session_summary, table
from pytest_jax_bench.options import Pin, PluginSettings


def cell(title: str, record: dict) -> TableCell:
    found = table.tabulate_records([record])
    return dict(zip(found.names, found.rows[0], strict=True))[title]


def test_columns_that_nobody_fills_are_left_out() -> None:
    full = a_row(eager_median_ms=1.0, eager_peak_bytes=5, jit_constants_bytes=200_000)

    few, many = (table.tabulate_records([a_record(row)]).names for row in (a_row(), full))

    assert few == ("Test", "C.Run", "Tag", "Compile", "Jit-Run", "Jit-Peak")
    assert many[3:] == ("Compile", "Jit-Run", "Eager-Run", "Jit-Peak", "Jit-Const", "Eager-Peak")


@pytest.mark.parametrize(
    ("ms", "text"),
    [(0.000_12, "120 ns"), (0.001_08, "1.08 µs"), (0.0123, "12.3 µs"), (1.5, "1.50 ms"), (2500.0, "2.50 s")],
)
def test_each_time_has_the_unit_in_which_it_reads_best(ms: float, text: str) -> None:
    row = a_row(jit=ms) | {"jit_low_ms": math.nan, "jit_high_ms": math.nan}

    assert cell("Jit-Run", a_record(row)).text == text


def test_a_time_is_shown_with_half_of_its_interval_and_what_it_is_compared_with() -> None:
    old = a_row(jit=1.08)
    new = a_row(jit=0.0912) | {"jit_low_ms": 0.0900, "jit_high_ms": 0.0924}

    assert cell("Jit-Run", a_record(new, old)).text == "1.08 -> 0.0912 ± 0.0012 ms faster"
    assert cell("Jit-Run", a_record(new)).text == "91.2 ± 1.2 µs"


def test_equal_sizes_are_shown_once_and_others_judged_exactly() -> None:
    old = a_row()

    assert cell("Jit-Peak", a_record(a_row(), old)) == TableCell("1.00 MiB", "")
    assert cell("Jit-Peak", a_record(a_row(jit_peak_bytes=2**21), old)).text == "1.00 MiB -> 2.00 MiB more"
    assert cell("Jit-Peak", a_record(a_row(jit_peak_bytes=2**19), old)).text == "1.00 MiB -> 512 KiB less"


@pytest.mark.parametrize(
    ("jit", "verdict", "markup"),
    [
        (0.1, "faster", {"green": True}),
        (10.0, "slower", {"red": True}),
        (1.3, "unclear", {"light": True}),
    ],
)
def test_only_what_the_comparison_supports_is_coloured(jit: float, verdict: str, markup: dict) -> None:
    found = cell("Jit-Run", a_record(a_row(jit=jit), a_row()))

    assert found.text.endswith(f" {verdict}" if verdict != "unclear" else " ms")
    assert session_summary.MARKUP[found.style] == markup


def test_a_first_run_has_no_colour() -> None:
    assert cell("Jit-Run", a_record(a_row())).style == ""


def test_the_commit_is_named_where_it_is_another_one() -> None:
    new = a_row(commit="bbbbbbb+", commit_run=3)

    assert cell("C.Run", a_record(new)).text == "3"
    assert cell("C.Run", a_record(new, a_row(commit="bbbbbbb", commit_run=1))).text == "1->3"
    assert cell("C.Run", a_record(new, a_row(commit="aaaaaaa", commit_run=1))).text == "aaaaaaa:1->3"


def test_a_failure_says_what_happened_where() -> None:
    row = a_row(jit=math.nan, status="timeout", message="compile: it took longer than 2 s", compile_ms=math.nan)

    assert cell("Status", a_record(row)) == TableCell("timeout in compile", "bad")


@pytest.mark.parametrize(
    ("codes", "text", "style"),
    [
        (["wrong-result"], "wrong result", "bad"),
        (["recompiled"], "compiled while timed", "warning"),
        (["busy", "recompiled", "wrong-result"], "wrong result, compiled while timed", "bad"),
        (["of-a-newer-rule"], "see below", "warning"),
        (["busy"], "see below", "warning"),
    ],
)
def test_only_a_failed_check_is_a_wrong_result(codes: list[str], text: str, style: str) -> None:
    """Any message on a row with numbers was called so."""
    found = cell("Status", a_record(a_row(message="differs"), codes=codes))

    assert found == TableCell(text, style)


def test_ends_are_shown_where_half_of_the_interval_is_as_much_as_the_value() -> None:
    row = a_row(jit=0.829) | {"jit_low_ms": 0.4, "jit_high_ms": 11.6}

    assert cell("Jit-Run", a_record(row)).text == "829 (400–11600) µs"


def test_few_rounds_have_their_least_and_greatest_reading() -> None:
    row = a_row(jit=1.0, jit_rounds=5) | {"jit_low_ms": math.nan, "jit_high_ms": math.nan}
    record = a_record(row, ranges={"jit": [0.9, 1.3]})

    assert cell("Jit-Run", record).text == "1.00 (0.900–1.30) ms"
    assert session_summary.notes([record], PluginSettings(), 0) == [
        "ptjb: (low–high) is the median's 95 % interval; of fewer than 6 rounds, the least and greatest reading"
    ]


def test_an_eager_peak_that_differs_from_call_to_call_has_both_ends() -> None:
    row = a_row(eager_peak_bytes=7 * 2**20)
    record = a_record(row, ranges={"eager_peak_bytes": [5.03 * 2**20, 7 * 2**20]})

    assert cell("Eager-Peak", record).text == "5.03 MiB–7.00 MiB"


def test_a_busy_machine_is_said_once() -> None:
    records = [a_record(a_row(), codes=["busy"]), a_record(a_row(), codes=["busy"]), a_record(a_row(), codes=[])]

    assert session_summary.notes(records, PluginSettings(), 0) == [
        "ptjb: the machine was busy with other things during 2 of 3 measurements"
    ]


@pytest.mark.parametrize(
    ("code", "line"),
    [
        ("no-commit", "ptjb: the commit is unknown: the repository has none, or belongs to another user"),
        ("no-dispatches", "ptjb: this JAX doesn't report which jitted functions a call runs: 2 of 2 measurements"),
        ("unforked", "ptjb: 2 of 2 measurements ran without a fork, because JAX had started before"),
    ],
)
def test_what_holds_for_many_measurements_is_said_once(code: str, line: str) -> None:
    (found,) = session_summary.notes([a_record(a_row(), codes=[code])] * 2, PluginSettings(), 0)

    assert found.startswith(line)


def test_gray_is_explained_once_and_unclear_is_said_by_v_alone() -> None:
    records = [a_record(a_row(jit=1.2), a_row())] * 3

    assert session_summary.notes(records, PluginSettings(), 0) == ["ptjb: 6 values in gray: no verdict (-v says why)"]
    assert sum("unclear" in line for line in session_summary.notes(records, PluginSettings(), 1)) == 2


def test_means_stand_in_for_medians_in_rows_of_the_peer() -> None:
    old = a_row(environment="", jit_mean_ms=2.0) | {f"jit_{k}_ms": math.nan for k in ("median", "low", "high", "min")}

    found = cell("Jit-Run", a_record(a_row(), old))

    assert found.text == "2.00 -> 1.00 ms"


def test_texts_stay_on_one_line_and_within_bounds() -> None:
    found = cell("Tag", a_record(a_row(tag="a\nb\x1b[31m" + "x" * 10_000)))

    assert found.text.startswith("a\\nb\\x1b[31mxxx")
    assert len(found.text) == table.LONGEST


def test_each_reason_is_given_once() -> None:
    records = [a_record(a_row(jit=1.2), a_row()), a_record(a_row(jit=1.3), a_row())]

    reasons = [line for line in session_summary.notes(records, PluginSettings(), 1) if line.startswith("unclear")]

    assert len(reasons) == 2  # of run times, and of compilation
    assert all(line.startswith("unclear (2): ") for line in reasons)


def test_a_pin_that_matches_nothing_is_said() -> None:
    settings = PluginSettings(pin=Pin("abc", None))

    assert session_summary.notes([a_record(a_row())], settings, 0) == [
        "ptjb: no run abc to compare with (--ptjb-pin): 1 of 1 measurements"
    ]
