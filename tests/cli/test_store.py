"""`benchax list` and `benchax show`: what is stored, found again. Nothing is measured here."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Benchax
from measurement_strategies import RICH, measured

from benchax.model import CaseId, Failure, Measurement
from benchax.reporting import terminal
from benchax.reporting.measurement import document
from benchax.store.database import open_store

ROWS = (
    measured("matmul", n=8),
    measured("matmul", n=16),
    replace(measured("fft", commit="0123456789abcdef"), failure=Failure("error", "trace", "it broke")),
    replace(RICH, failure=None, case=CaseId("ifft", (("n", 256),), tag="new")),
)


@pytest.fixture
def rows(project: Path) -> tuple[Measurement, ...]:
    """Stored in the default folder, with the ids 1 to 4."""
    store = open_store(project / ".benchmarks")
    assert [store.append(m) for m in ROWS] == [1, 2, 3, 4]
    return ROWS


# ---- list -------------------------------------------------------------------------------------------------------


def test_rows_are_listed_with_their_ids_oldest_first(
    benchax: Benchax, rows: tuple[Measurement, ...], snapshot: Any
) -> None:
    done = benchax("list")

    assert (done.code, done.err) == (0, "")
    assert done.out == snapshot


@pytest.mark.parametrize("option", ["--filter", "-k"])
@pytest.mark.parametrize(
    ("pattern", "ids"),
    [("matmul", ["1", "2"]), ("n=8", ["1"]), ("*f*", ["3", "4"]), ("fft", ["3", "4"]), ("fft*", ["3"])],
)
def test_a_filter_is_a_part_of_a_label_or_a_pattern_as_for_a_run(
    option: str, pattern: str, ids: list[str], benchax: Benchax, rows: tuple[Measurement, ...]
) -> None:
    done = benchax("list", option, pattern)

    assert [line.split()[0] for line in done.out.splitlines()[1:]] == ids


def test_json_is_one_document_per_line_of_the_newest_if_there_is_a_limit(
    benchax: Benchax, rows: tuple[Measurement, ...]
) -> None:
    every, newest = benchax("list", "--json"), benchax("list", "--limit", "2", "--json")

    assert (every.code, every.err, every.rows, newest.rows) == (0, "", list(rows), list(rows[2:]))


def test_nothing_found_is_said_and_no_error(benchax: Benchax, rows: tuple[Measurement, ...]) -> None:
    done = benchax("list", "-k", "sort")

    assert (done.code, done.out) == (0, "")
    assert done.err == "no row in .benchmarks/benchax.db is of a case 'sort'\n"


# ---- show -------------------------------------------------------------------------------------------------------


def test_one_row_is_shown_in_full(benchax: Benchax, rows: tuple[Measurement, ...]) -> None:
    done, full = benchax("show", "4"), benchax("show", "4", "-v")

    assert (done.code, done.err, full.code, full.err) == (0, "", 0, "")
    assert done.out == terminal.to_text(document(rows[3])) + "\n"
    assert full.out == terminal.to_text(document(rows[3], is_full=True)) + "\n"
    assert "planned peak" in done.out


def test_the_raw_samples_are_numbers_without_loss(benchax: Benchax, rows: tuple[Measurement, ...]) -> None:
    done = benchax("show", "4", "--samples")

    found = [line.split("\t") for line in done.out.splitlines()]
    expected = [(s.timer, value) for s in rows[3].samples for value in s.per_call_s]
    assert [(timer, float(value)) for timer, value in found] == expected


def test_another_store_can_be_named_also_in_settings(
    benchax: Benchax, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(project / "elsewhere").append(ROWS[0])

    named = benchax("show", "--store", "elsewhere", "--json").rows
    monkeypatch.setenv("BENCHAX_STORE", "elsewhere")

    assert benchax("list", "--json").rows == named == [ROWS[0]]


# ---- runs -------------------------------------------------------------------------------------------------------


@pytest.fixture
def runs(project: Path) -> None:
    store = open_store(project / ".benchmarks")
    for m in (
        measured("matmul", run="a" * 32, n=8),
        measured("matmul", run="a" * 32, n=16),
        replace(measured("fft", run="b" * 32), failure=Failure("error", "trace", "it broke")),
        measured("ifft", run="c" * 32),
    ):
        store.append(m)


def test_runs_are_listed_the_newest_last(benchax: Benchax, runs: None, snapshot: Any) -> None:
    benchax("baseline", "set", "v1", "aaaa")

    done = benchax("runs")

    assert done.code == 0
    assert done.out == snapshot


def test_runs_are_objects_for_programs(benchax: Benchax, runs: None) -> None:
    found = [json.loads(line) for line in benchax("runs", "--json", "-n", "2").out.splitlines()]

    assert [(run["run_id"][0], run["rows"], run["failed"], run["cases"]) for run in found] == [
        ("b", 1, 1, ["fft"]),
        ("c", 1, 0, ["ifft"]),
    ]


@pytest.mark.parametrize(
    ("word", "ids"), [("last", ["4"]), ("last~1", ["3"]), ("last~2", ["1", "2"]), ("aa", ["1", "2"])]
)
def test_the_rows_of_a_run_are_listed(word: str, ids: list[str], benchax: Benchax, runs: None) -> None:
    done = benchax("list", "--run", word)

    assert [line.split()[0] for line in done.out.splitlines()[1:]] == ids


@pytest.mark.parametrize(("word", "name"), [("", "ifft"), ("last", "ifft"), ("last~1", "fft"), ("last~3", "matmul")])
def test_a_row_is_counted_from_the_last(word: str, name: str, benchax: Benchax, runs: None) -> None:
    assert benchax("show", *word.split(), "--json").rows[0].case.name == name
