"""Pages of files that experiments, audits and checklists wrote: all of it, or an error that says what can be."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Benchax
from results_by_hand import every_result

from benchax.cli.report import read_results

KINDS = ("Experiment", "Audit", "Checklist")


def write(file: Path, *results: Any) -> Path:
    file.write_text("".join(json.dumps(each.asdict(), default=str) + "\n" for each in results), encoding="utf-8")
    return file


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_written_is_read_back_as_it_was(kind: str, tmp_path: Path) -> None:
    result = every_result("f<b>")[kind]

    assert read_results(write(tmp_path / "r.json", result)) == [result]


@pytest.mark.parametrize("kind", KINDS)
def test_a_report_is_of_such_a_file(kind: str, project: Path, benchax: Benchax) -> None:
    write(project / "r.json", every_result("f<b>")[kind])

    done = benchax("report", "r.json")

    assert done.code in (0, None)
    assert "f&lt;b&gt;" in (project / "report.html").read_text(encoding="utf-8")


def test_several_are_parts_of_one_page(project: Path, benchax: Benchax) -> None:
    write(project / "r.jsonl", *(replace(every_result("f")["Audit"], name=name) for name in ("one", "two")))

    benchax("report", "r.jsonl")

    text = (project / "report.html").read_text(encoding="utf-8")
    assert "<h1>2 results of r.jsonl</h1>" in text
    assert "<h2>two: 1 finding" in text
