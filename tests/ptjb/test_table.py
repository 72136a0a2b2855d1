"""The table: its columns, its cells, and what is coloured."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import pytest
from csv_rows_by_hand import a_record, a_row

from pytest_jax_bench import session_summary, table
from pytest_jax_bench.options import Pin, PluginSettings
from pytest_jax_bench.table import SummaryCell


def cell(title: str, record: dict) -> SummaryCell:
    found = table.tabulate_records([record])
    return dict(zip(found.names, found.rows[0], strict=True))[title]


def test_columns_that_nobody_fills_are_left_out() -> None:
    full = a_row(eager_median_ms=1.0, eager_peak_bytes=5, jit_constants_bytes=200_000)

    few, many = (table.tabulate_records([a_record(row)]).names for row in (a_row(), full))

    assert few == ("Test", "C.Run", "Tag", "Compile", "Jit-Run", "Jit-Peak")
    assert many[3:] == ("Compile", "Jit-Run", "Eager-Run", "Jit-Peak", "Jit-Const", "Eager-Peak")


def timed(low: float, median: float, high: float, **values: Any) -> dict[str, Any]:
    return a_row(jit=median, **values) | {"jit_low_ms": low, "jit_high_ms": high}


NONE = math.nan
BUSY = {"commit": "bbbbbbb+", "commit_run": 3}
PEER = a_row(environment="", jit_mean_ms=2.0) | {f"jit_{k}_ms": NONE for k in ("median", "low", "high", "min")}


@pytest.mark.parametrize(
    ("title", "new", "old", "text", "style"),
    [
        # Each time has the unit in which it reads best, with half of its interval.
        ("Jit-Run", timed(NONE, 0.000_12, NONE), None, "120 ns", ""),
        ("Jit-Run", timed(NONE, 0.0123, NONE), None, "12.3 µs", ""),
        ("Jit-Run", timed(NONE, 2500.0, NONE), None, "2.50 s", ""),
        ("Jit-Run", timed(0.09, 0.0912, 0.0924), None, "91.2 ± 1.2 µs", ""),
        ("Jit-Run", timed(0.9, 1.0, 1.3), None, "1.00 ± 0.20 ms", ""),
        ("Jit-Run", timed(0.4, 0.829, 11.6), None, "829 (400–11600) µs", ""),
        # Only what the comparison supports is coloured.
        ("Jit-Run", timed(0.09, 0.0912, 0.0924), a_row(jit=1.08), "1.08 -> 0.0912 ± 0.0012 ms faster", "good"),
        ("Jit-Run", a_row(jit=10.0), a_row(), "1.00 -> 10.0 ms slower", "bad"),
        ("Jit-Run", a_row(jit=1.3), a_row(), "1.00 -> 1.30 ms", "faint"),
        ("Jit-Run", a_row(), PEER, "2.00 -> 1.00 ms", "faint"),
        ("Compile", a_row(compile_ms=153.0), a_row(compile_ms=439.0), "439 -> 153 ms", "faint"),
        ("Compile", a_row(compile_ms=155.0), a_row(compile_ms=101.0), "101 -> 155 ms", "faint"),
        # Sizes are judged exactly; those that look equal are shown once.
        ("Jit-Peak", a_row(), a_row(), "1.00 MiB", ""),
        ("Jit-Peak", a_row(jit_peak_bytes=2**20 + 8), a_row(), "1.00 MiB", ""),
        ("Jit-Peak", a_row(jit_peak_bytes=2**21), a_row(), "1.00 MiB -> 2.00 MiB more", "bad"),
        ("Jit-Peak", a_row(jit_peak_bytes=2**19), a_row(), "1.00 MiB -> 512 KiB less", "good"),
        ("C.Run", a_row(**BUSY), None, "3", ""),
        ("C.Run", a_row(**BUSY), a_row(commit="bbbbbbb", commit_run=1), "1->3", ""),
        ("C.Run", a_row(**BUSY), a_row(commit="aaaaaaa", commit_run=1), "aaaaaaa:1->3", ""),
        ("Status", a_row(status="timeout", message="compile: it took 2 s"), None, "timeout in compile", "bad"),
        ("Tag", a_row(tag="a\nb\x1b[31m" + "x" * 99), None, "a\\nb\\x1b[31m" + "x" * 47 + "…", ""),
    ],
)
def test_a_cell_shows_a_value_what_it_is_compared_with_and_the_verdict(title, new, old, text, style) -> None:
    assert cell(title, a_record(new, old)) == SummaryCell(text, style)


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
    assert cell("Status", a_record(a_row(message="differs"), codes=codes)) == SummaryCell(text, style)


FEW = a_record(timed(NONE, 1.0, NONE, jit_rounds=5), ranges={"jit": [0.9, 1.3]})
PEAKS = a_record(a_row(eager_peak_bytes=7 * 2**20), ranges={"eager_peak_bytes": [5.03 * 2**20, 7 * 2**20]})


def test_a_few_readings_and_a_peak_that_differs_have_both_ends() -> None:
    assert cell("Jit-Run", FEW).text == "1.00 (0.900–1.30) ms"
    assert cell("Eager-Peak", PEAKS).text == "5.03 MiB–7.00 MiB"


def with_code(code: str) -> list[dict]:
    return [a_record(a_row(), codes=[code])] * 2 + [a_record(a_row())]


@pytest.mark.parametrize(
    ("records", "settings", "lines"),
    [
        ([FEW], {}, ["ptjb: (low–high) is the median's 95 % interval; of fewer than 6 rounds, the least and greatest"]),
        (with_code("busy"), {}, ["ptjb: other processes kept the machine busy during 2 of 3 measurements"]),
        (with_code("no-commit"), {}, ["ptjb: the commit is unknown: the repository has none, or belongs to another"]),
        (with_code("no-dispatches"), {}, ["ptjb: this JAX doesn't report which jitted functions a call runs: 2 of 3"]),
        (with_code("unforked"), {}, ["ptjb: 2 of 3 measurements ran without a fork, because JAX had started before"]),
        ([a_record(a_row(jit=1.2), a_row())] * 3, {}, ["ptjb: 6 values in gray: no verdict (-v says why)"]),
        (
            [a_record(a_row(jit=1.2), a_row())] * 2,
            {"verbosity": 1},
            ["ptjb: 4 values in gray: no verdict", "unclear (2): ", "unclear (2): "],
        ),
        ([a_record(a_row())], {"pin": Pin("abc", None)}, ["ptjb: no run abc to compare with (--ptjb-pin): 1 of 1"]),
    ],
)
def test_what_holds_for_many_measurements_is_said_once(records, settings, lines) -> None:
    verbosity = settings.get("verbosity", 0)
    found = session_summary.notes(records, PluginSettings(pin=settings.get("pin")), verbosity)

    assert [line[: len(start)] for line, start in zip(found, lines, strict=True)] == lines


def test_a_file_of_results_has_null_for_what_was_not_measured() -> None:
    record = a_record(a_row(jit=1.3, jit_low_ms=math.nan)) | {"csv": "main.csv", "measurements": []}

    (found,) = json.loads(session_summary.make_json([record], session="s"))["results"]
    assert (found["row"]["jit_median_ms"], found["row"]["jit_low_ms"]) == (1.3, None)


# ---- how the table is fitted to a terminal: nothing is cut, nothing is torn, and nothing is wider but names ---------

WIDE = "tests/test_a_long_folder/test_file.py::test_of_something_with_a_long_name[float32-1024]"
USUAL = "tests/test_fft.py::test_fft[128]"


def records() -> list[dict]:
    old = a_row(jit=1.08, eager_median_ms=3.0)
    new = a_row(jit=1.3, eager_median_ms=829.0, commit_run=1) | {"eager_low_ms": 1.0, "eager_high_ms": 5627.0}
    return [a_record(new, old), a_record(a_row(), None, nodeid=WIDE), a_record(a_row(status="error", message="run: x"))]


def usual(count: int) -> Any:
    """Rows with jitted and eager times, as a second session has them."""
    times = {"eager_median_ms": 11.4, "eager_low_ms": 11.1, "eager_high_ms": 11.8, "compile_ms": 226.0}
    new = a_row(jit=149.0, commit_run=12, **times) | {"jit_low_ms": 141.0, "jit_high_ms": 152.0}
    return table.tabulate_records([a_record(new, a_row(jit=86.4, **times), nodeid=USUAL)] * count)


@pytest.mark.parametrize("width", [80, 100, 120, 300])
def test_no_line_is_wider_than_the_terminal_and_no_text_is_lost(width: int) -> None:
    found = table.tabulate_records(records())

    lines = table.fit(found, width)

    assert [line for line in lines if len(line) > width and line != WIDE] == []
    cells = [re.sub(r" (->|±) ", r"\1", text) for row in found.rows for text, _ in row if text != "base"]
    assert [text for text in cells if text not in re.sub(r" (->|±) ", r"\1", "\n".join(lines))] == []


@pytest.mark.parametrize("width", [100, 80, 41])
def test_values_stay_whole(width: int, snapshot: Any) -> None:
    assert "\n".join(table.fit(usual(2), width)) == snapshot


def test_a_tag_that_says_something_is_never_left_out() -> None:
    found = table.tabulate_records([a_record(a_row(tag="other")), a_record(a_row())])

    assert "other" in "\n".join(table.fit(found, 41))


def test_colours_do_not_move_columns() -> None:
    found = table.tabulate_records([a_record(a_row(jit=10.0, commit_run=1), a_row())])

    plain, coloured = (
        table.fit(found, 200, markup)
        for markup in (lambda text, style: text, lambda text, style: f"<{style}>{text}</>" if style == "bad" else text)
    )

    assert "<bad>1.00 -> 10.0 ms slower</>" in coloured[1]
    assert coloured[1].replace("<bad>", "").replace("</>", "") == plain[1]
