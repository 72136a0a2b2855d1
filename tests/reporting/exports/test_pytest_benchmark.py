"""The file that pytest-benchmark reads. The golden one was written by pytest-benchmark 5.3.1 itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from exported_rows import BARE, FAILED, FULL, SIX_S, document, text

from benchax.reporting.exports import stats

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


def test_every_reading_is_there_in_seconds_per_call() -> None:
    full, bare = document("pytest-benchmark", timer=None)["benchmarks"]

    assert full["stats"]["data"] == list(SIX_S)
    assert full["stats"]["median"] == 1.2e-4
    assert (bare["stats"]["rounds"], bare["stats"]["stddev"]) == (1, 0.0)


def test_a_case_keeps_its_parameters_and_its_tag() -> None:
    (full,) = document("pytest-benchmark", (FULL,))["benchmarks"]

    assert (full["name"], full["group"]) == ("fft[n=256, dtype=f32] #new", "new")
    assert (full["params"], full["param"]) == ({"n": 256, "dtype": "f32"}, "256-f32")


def test_what_the_format_has_no_key_for_is_extra_information() -> None:
    full, bare = document("pytest-benchmark")["benchmarks"]

    assert full["extra_info"]["compile_s"] == 0.25
    assert full["extra_info"]["predicted_peak_bytes"] == 2097164
    assert full["extra_info"]["median_low_95_s"] == 1.1e-4
    assert bare["extra_info"].keys() == {"case", "host", "commit", "fingerprint"}


def test_a_failed_case_has_no_row() -> None:
    assert document("pytest-benchmark", (FAILED,))["benchmarks"] == []


def test_what_is_not_known_is_said_as_pytest_benchmark_says_it() -> None:
    """A file of rows of two commits is of no commit."""
    commit = document("pytest-benchmark", (FULL, BARE))["commit_info"]

    assert commit == {"id": "unknown", "time": None, "author_time": None, "dirty": None, "branch": "(unknown)"}
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
