"""`benchax report`: what is meant by WHAT, and what is said where there is nothing to show."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import Benchax
from comparisons_by_hand import compared
from measurement_strategies import RICH

from benchax import codec
from benchax.model import CaseId
from benchax.renderers import RENDERERS
from benchax.store.comparisons import append
from benchax.store.database import open_store


@pytest.fixture
def stored(project: Path) -> Path:
    """Two runs of two cases, and a comparison of one of them."""
    store = open_store(project / ".benchmarks")
    for run in ("aaaa1111", "bbbb2222"):
        for name in ("matmul", "sort"):
            store.append(replace(RICH, case=CaseId(name), run_id=run, failure=None))
    append(store, [replace(compared(1, 1.2, case=CaseId("sort")), candidate=replace(compared(1, 1.2).candidate))])
    return project


def test_a_report_is_of_the_last_run_in_report_html(stored: Path, benchax: Benchax) -> None:
    done = benchax("report")

    page = (stored / "report.html").read_text(encoding="utf-8")
    assert done.code in (0, None)
    assert "<h1>Run bbbb2222</h1>" in page
    assert done.err.startswith("report.html: ")
    assert done.out == ""


def test_a_report_is_of_the_run_and_the_cases_that_are_named(stored: Path, benchax: Benchax) -> None:
    benchax("report", "last~1", "--filter", "mat", "-o", "one.html")

    page = (stored / "one.html").read_text(encoding="utf-8")
    assert "<h1>Run aaaa1111</h1>" in page
    assert "matmul" in page
    assert "sort</h2>" not in page


def test_a_report_is_of_a_file_of_rows(project: Path, benchax: Benchax) -> None:
    (project / "rows.jsonl").write_text(codec.encode(RICH) + "\n", encoding="utf-8")

    benchax("report", "rows.jsonl")

    assert "fft" in (project / "report.html").read_text(encoding="utf-8")


def test_a_history_and_an_inspection_become_pages(
    stored: Path, benchax: Benchax, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where no public name was imported, which teaches results to write pages."""
    benchax("history", "sort", "--html", "history.html")
    monkeypatch.delitem(RENDERERS, "save", raising=False)
    monkeypatch.delitem(sys.modules, "benchax.reporting.display", raising=False)

    done = benchax("inspect", "jax.numpy:negative", "f32[8]", "--html", "inspection.html")

    assert "page written to inspection.html" in done.err
    assert ">sort: slower" in (stored / "history.html").read_text(encoding="utf-8")
    assert "operations by scope and line" in (stored / "inspection.html").read_text(encoding="utf-8")
