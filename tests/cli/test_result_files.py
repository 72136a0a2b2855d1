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


def test_what_would_lose_something_is_refused_with_what_can_be_read(project: Path, benchax: Benchax) -> None:
    document = every_result("f")["Audit"].asdict() | {"of_tomorrow": 3}
    (project / "r.json").write_text(json.dumps(document), encoding="utf-8")

    done = benchax("report", "r.json")

    assert done.code == 2
    assert "of_tomorrow" in done.err or "was written by another version" in done.err
    assert not (project / "report.html").exists()


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ('{"other": 1}', "line 2 of 'r.json' is no experiment, audit or checklist, as the first one is"),
        ('{"name": 3, "signature": "", "ticks": []}', "line 2 of 'r.json' cannot be read back: name is 3"),
    ],
)
def test_a_line_that_is_damaged_is_named(line: str, text: str, project: Path, benchax: Benchax) -> None:
    file = write(project / "r.json", every_result("f")["Checklist"])
    file.write_text(file.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")

    done = benchax("report", "r.json")

    assert done.code == 2
    assert text in done.err


def test_json_of_something_else_says_what_can_be_reported(project: Path, benchax: Benchax) -> None:
    (project / "r.json").write_text('{"a": 1}\n', encoding="utf-8")
    (project / "b.json").write_bytes(b"\xff\xfe\x00")

    other, binary = benchax("report", "r.json"), benchax("report", "b.json")

    assert (other.code, binary.code) == (2, 2)
    assert "experiments, audits or checklists" in other.err
    assert "cannot read 'b.json': it is no text" in binary.err


def test_a_filter_is_of_rows(project: Path, benchax: Benchax) -> None:
    write(project / "r.json", every_result("f")["Audit"])

    done = benchax("report", "r.json", "-k", "f")

    assert done.code == 2
    assert "--filter 'f' of 'r.json', which holds no rows" in done.err
