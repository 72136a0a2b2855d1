"""`benchax report` and `benchax site`: what is meant by WHAT, and what is written."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Benchax
from comparisons_by_hand import compared
from measurement_strategies import RICH
from results_by_hand import every_result
from site_stores import make_store, row

from benchax.cli.export import read_results
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


def test_a_site_says_how_many_pages_were_written(benchax: Benchax, project: Path) -> None:
    store = make_store(project / ".benchmarks")

    first = benchax("site")
    second = benchax("site")
    store.append(row(4))
    third = benchax("site")

    assert (first.code, first.out) == (0, "")
    assert first.err == "site/index.html: 4 of 4 pages of cases written, 24 of 24 versions, 11 other files\n"
    assert second.err == "site/index.html: 0 of 4 pages of cases written, 0 of 24 versions, 0 other files\n"
    assert third.err == "site/index.html: 1 of 4 pages of cases written, 1 of 24 versions, 2 other files\n"


# ---- files that experiments, audits and checklists wrote --------------------------------------------------------


def write(file: Path, *results: Any) -> Path:
    file.write_text("".join(json.dumps(each.asdict(), default=str) + "\n" for each in results), encoding="utf-8")
    return file


@pytest.mark.parametrize("kind", ["Experiment", "Audit", "Checklist"])
def test_what_was_written_is_read_back_as_it_was_and_is_a_page(kind: str, project: Path, benchax: Benchax) -> None:
    result = every_result("f<b>")[kind]

    assert read_results(write(project / "r.json", result)) == [result]
    assert benchax("report", "r.json").code in (0, None)
    assert "f&lt;b&gt;" in (project / "report.html").read_text(encoding="utf-8")


def test_several_are_parts_of_one_page(project: Path, benchax: Benchax) -> None:
    write(project / "r.jsonl", *(replace(every_result("f")["Audit"], name=name) for name in ("one", "two")))

    benchax("report", "r.jsonl")

    text = (project / "report.html").read_text(encoding="utf-8")
    assert "<h1>2 results of r.jsonl</h1>" in text
    assert "<h2>two: 1 finding" in text
