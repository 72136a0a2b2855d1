"""The file that pytest-benchmark reads. The golden one was written by pytest-benchmark 5.3.1 itself."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from exported_rows import BARE, FAILED, FULL, document, text

from benchax.reporting.exports import common_environment, stats

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "pytest-benchmark-5.3.1.json").read_text("utf-8"))


@pytest.mark.parametrize("theirs", [b["stats"] for b in GOLDEN["benchmarks"]], ids=lambda s: f"{s['rounds']} rounds")
def test_statistics_are_those_that_pytest_benchmark_computes(theirs: dict[str, Any]) -> None:
    ours = stats(theirs["data"])

    assert ours.keys() == theirs.keys() - {"data", "iterations"}
    assert ours.pop("outliers") == theirs["outliers"]
    assert ours == pytest.approx({name: theirs[name] for name in ours}, rel=1e-12)


def test_the_keys_are_those_of_pytest_benchmark() -> None:
    found = document("pytest-benchmark")
    theirs = GOLDEN["benchmarks"][0]

    assert found.keys() == GOLDEN.keys()
    for benchmark in found["benchmarks"]:
        assert benchmark.keys() == theirs.keys()
        assert benchmark["stats"].keys() == theirs["stats"].keys()
        assert benchmark["options"].keys() <= theirs["options"].keys()


def test_a_fingerprint_that_one_row_was_asked_for_changes_nothing() -> None:
    rows = [replace(row, environment=replace(row.environment)) for row in (FULL, BARE)]
    assert rows[0].environment.fingerprint

    found = common_environment(rows)

    assert found == common_environment(rows[::-1])
    assert "fingerprint" not in found


def test_every_reading_parameters_and_what_the_format_has_no_key_for_are_there(snapshot: Any) -> None:
    """A file of rows of two commits is of no commit; a failed case has no row."""
    assert document("pytest-benchmark", (FULL, BARE, FAILED)) == snapshot
    assert document("pytest-benchmark", (FULL,))["commit_info"]["id"] == FULL.environment.commit


def test_pytest_benchmark_itself_compares_two_files(tmp_path: Path) -> None:
    pytest.importorskip(
        "pytest_benchmark", reason="pytest-benchmark is not installed here; docs/how-to/exports.md: done by hand"
    )
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(text("pytest-benchmark"))

    command = [sys.executable, "-m", "pytest_benchmark", "compare", "a.json", "b.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.count("fft[n=256, dtype=f32] #new") == 2
