"""`benchax export` and `benchax import`: stored runs to other tools, and those of pytest-benchmark back."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from command_line import Benchax
from comparisons_by_hand import compared
from git_repositories import git
from measurement_strategies import HOST, RICH, SLOWER, measured
from results_by_hand import every_result
from site_stores import make_store, row

from benchax.cli.export import is_of, read_results
from benchax.codec import from_document
from benchax.model import CaseId, Failure, Measurement, Program, Version
from benchax.reporting.exports import FORMATS
from benchax.store import baselines, comparisons
from benchax.store.comparisons import append
from benchax.store.database import DatabaseStore, open_store

GOLDEN = Path(__file__).parents[1] / "golden" / "pytest-benchmark-5.3.1.json"


@pytest.fixture
def store(project: Path) -> DatabaseStore:
    """Two runs: v1 of one case, and the last of three, one of them failed."""
    found = open_store(project / ".benchmarks")
    found.append(measured("matmul", run="run-1", commit="a" * 40, n=8))
    for m in (measured("matmul", run="run-2", n=8), measured("naïve | 🦊", run="run-2")):
        found.append(m)
    found.append(replace(measured("bad", run="run-2"), samples=(), failure=Failure("timeout", "compile", "over 3 s")))
    baselines.set_baseline(found, "v1", "run-1")
    return found


@pytest.mark.parametrize("format", FORMATS)
def test_data_go_to_stdout_and_words_to_stderr(format: str, benchax: Benchax, store: DatabaseStore) -> None:
    done = benchax("export", "--format", format)

    assert (done.code, done.err) == (0, "3 cases, 1 of them without times\n")
    assert "matmul" in done.out
    assert done.out.endswith("\n")


def test_a_file_holds_what_stdout_would(benchax: Benchax, store: DatabaseStore, project: Path) -> None:
    out = benchax("export", "--format", "csv").out

    done = benchax("export", "--format", "csv", "--output", "new folder/rows.csv")

    assert (done.code, done.out) == (0, "")
    assert done.err == "3 cases to new folder/rows.csv, 1 of them without times\n"
    assert (project / "new folder/rows.csv").read_bytes().decode() == out


@pytest.mark.parametrize(("reference", "run"), [((), "run-2"), (("v1",), "run-1"), (("aaaa",), "run-1")])
def test_a_run_is_named_as_elsewhere(
    reference: tuple[str, ...], run: str, benchax: Benchax, store: DatabaseStore
) -> None:
    found = json.loads(benchax("export", *reference, "--format", "json").out)

    assert {from_document(m).run_id for m in found["measurements"]} == {run}


def test_asv_gets_the_date_of_the_commit_and_later_runs_join_it(benchax: Benchax, project: Path) -> None:
    git(project, "init", "--quiet")
    git(project, "commit", "--quiet", "--allow-empty", "-m", "one", "--date", "2025-01-01T00:00:00Z")
    commit = git(project, "rev-parse", "HEAD")
    (project / commit).touch()  # git does not know then which of them is meant
    for name in ("f", "g"):
        open_store(project / ".benchmarks").append(measured(name, run=name, commit=commit))
        assert benchax("export", "--format", "asv", "-o", "results").code == 0

    (file,) = project.glob(f"results/host/{commit[:8]}-*.json")
    found = json.loads(file.read_text())

    assert found["date"] == 1000 * int(git(project, "show", "-s", "--format=%ct"))
    assert found["results"].keys() == {"f", "g"}
    assert json.loads((project / "results/benchmarks.json").read_text()).keys() == {"f", "g", "version"}


# ---- comparisons ------------------------------------------------------------------------------------------------


def with_program(m: Measurement, sha256: str) -> Measurement:
    return replace(m, program=Program(sha256, 1, b"x"))


def test_what_the_newest_comparison_calls_slower_fails_in_junit(benchax: Benchax, project: Path) -> None:
    store = open_store(project / ".benchmarks")
    m = with_program(measured("f", run="r"), "a" * 64)
    store.append(m)
    slower = replace(SLOWER, case=m.case, candidate=Version("now", program="a" * 64))
    comparisons.append(store, [slower, replace(slower, metric="peak", verdict="same")])

    failing = ElementTree.fromstring(benchax("export", "--format", "junit").out)
    comparisons.append(store, [replace(slower, verdict="same", ratio=1.0)])
    fine = ElementTree.fromstring(benchax("export", "--format", "junit").out)

    assert [suite.get("failures") for suite in (failing, fine)] == ["1", "0"]


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        (Version("now", program="a" * 64), True),
        (Version("now", program="b" * 64), False),
        (Version("now", commit="c0ffee", is_dirty=False), True),
        (Version("now", commit="c0ffee", is_dirty=False, program="b" * 64), True),
        (Version("now", commit="c0ffee", is_dirty=True), False),
        (Version("now", commit="decade", is_dirty=False), False),
        (Version("now"), False),
    ],
)
def test_a_comparison_belongs_to_what_its_candidate_ran(candidate: Version, expected: bool) -> None:
    m = with_program(measured("f"), "a" * 64)
    m = replace(m, environment=replace(HOST, commit="c0ffee", is_dirty=False))

    assert is_of(replace(SLOWER, case=m.case, candidate=candidate), m) is expected


# ---- import -----------------------------------------------------------------------------------------------------


def test_a_file_of_pytest_benchmark_becomes_a_run_once(benchax: Benchax, project: Path) -> None:
    done = benchax("import", str(GOLDEN))

    rows = open_store(project / ".benchmarks").query()
    assert (done.code, done.out) == (0, "")
    assert done.err == f"5 rows stored in .benchmarks/benchax.db as run {rows[0].run_id[:12]}\n"
    assert len(rows) == 5
    assert "test_x.py::test_rounds[rounds=5, what=x,y] #rounds" in benchax("list").out
    again = benchax("import", str(GOLDEN))
    assert (again.code, open_store(project / ".benchmarks").query()) == (0, rows)
    assert re.fullmatch("0 rows stored in .*, 5 were there already\n", again.err)


def test_a_file_without_readings_is_stored_and_said_to_be_one(benchax: Benchax, project: Path) -> None:
    done = benchax("import", str(GOLDEN.with_name("pytest-benchmark-5.3.1-saved.json")))

    assert done.err.endswith("1 of them without readings: the file holds statistics only\n")
    assert "not measured pytest-benchmark the file holds statistics without readings" in " ".join(
        benchax("show").out.split()
    )


def test_what_was_imported_can_be_exported_again(benchax: Benchax, project: Path) -> None:
    benchax("import", str(GOLDEN))

    found = json.loads(benchax("export", "--format", "pytest-benchmark").out)

    theirs = json.loads(GOLDEN.read_text("utf-8"))["benchmarks"]
    assert [b["stats"]["median"] for b in found["benchmarks"]] == pytest.approx(
        [b["stats"]["median"] for b in theirs], rel=1e-12
    )


# ---- report and site -------------------------------------------------------------------------------------------------


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


def test_a_history_and_an_inspection_become_pages(stored: Path, benchax: Benchax) -> None:
    benchax("history", "sort", "--html", "history.html")
    (stored / "model.py").write_text("def f(x):\n    y = x @ x\n    return y @ x\n")

    done = benchax("inspect", "model.py:f", "f32[8,8]", "--html", "inspection.html")

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
    assert first.err == "site/index.html: 4 of 4 pages of cases written, 24 of 24 versions, 10 other files\n"
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
