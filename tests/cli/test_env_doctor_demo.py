"""`benchax env`, `benchax doctor`, `benchax demo`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from command_line import Benchax
from source_tree import PACKAGE

import benchax as package
from benchax import demo as examples
from benchax.case import make_case


def strict(text: str) -> dict[str, object]:
    """JSON as the standard has it: without NaN and Infinity."""

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


# ---- env --------------------------------------------------------------------------------------------------------


def test_env_shows_what_is_stored_with_every_row(benchax: Benchax, project: Path) -> None:
    done = benchax("env")

    assert (done.code, done.err) == (0, "")
    labels = [
        line.split("  ")[1].strip() for line in done.out.splitlines()[1:] if line.startswith("  ") and line[2] != " "
    ]
    assert labels[:3] == ["host", "os", "python"]
    assert labels[-1] == "fingerprint"
    assert "  backend           cpu" in done.out.splitlines()


def test_env_as_json_is_one_object_with_the_fingerprint(benchax: Benchax, project: Path) -> None:
    done = benchax("env", "--json")

    assert (done.code, done.err) == (0, "")
    facts = strict(done.out)
    assert facts["backend"] == "cpu"
    assert len(str(facts["fingerprint"])) == 12
    assert list(project.iterdir()) == []


# ---- doctor -----------------------------------------------------------------------------------------------------


def test_doctor_shows_readings_and_advice(benchax: Benchax, project: Path) -> None:
    done = benchax("doctor", "--duration", "0.1")

    assert done.code == 0
    assert "  clock step " in done.out
    assert "  time lost " in done.out
    # pytest itself is a reason: its threads, or JAX_PLATFORMS that these tests set.
    assert "\nremarks\n" in done.out
    assert done.err.startswith("looking at this machine")


def test_doctor_as_json_is_one_object(benchax: Benchax, project: Path) -> None:
    done = benchax("doctor", "-s", "0.1", "--json")

    assert done.code == 0
    found = strict(done.out)
    assert {"environment", "clock", "noise", "gaps", "spread", "smallest_effect", "advice"} <= found.keys()
    assert found["clock"]["resolution_s"] > 0  # type: ignore[index]


# ---- demo -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_demo_is_one_measurement_and_one_comparison_in_thirty_lines(tmp_path: Path) -> None:
    settings = {name: value for name, value in os.environ.items() if not name.startswith(("BENCHAX_", "COLUMNS"))}
    settings |= {"PYTHONPATH": str(PACKAGE.parent), "BENCHAX_MIN_TIME_S": "0.01", "BENCHAX_MAX_WARMUP_S": "0.02"}
    command = [sys.executable, "-m", "benchax", "demo", "--max-time", "0.02"]

    done = subprocess.run(
        command, cwd=tmp_path, env=settings, encoding="utf-8", timeout=120, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
    assert [m.case.label for m in package.load(tmp_path / ".benchmarks")] == ["mlp"]
    lines = done.stdout.splitlines()
    assert len(lines) <= 30, done.stdout
    assert [line for line in lines if line.startswith("mlp ") and " µs  (" in line]
    assert [line for line in lines if line.startswith("bx_first")]
    assert "$ benchax compare benchax.demo:ab_first benchax.demo:bx_first " in done.stdout


@pytest.fixture
def small_examples(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The demo with functions that cost next to nothing; the folder that it runs in."""
    monkeypatch.setattr(examples, "mlp_case", lambda: make_case(lambda x: x + 1, ("f32[8]",), name="small"))
    monkeypatch.setattr(examples, "PRODUCT", ("jax.numpy:sin", "jax.numpy:cos", "f32[8]"))
    for option, value in {"min_time_s": "0.01", "memory": "off", "timer": "wall", "processes": "1"}.items():
        monkeypatch.setenv(f"BENCHAX_{option.upper()}", value)
    return project


@pytest.mark.slow
def test_demo_leaves_nothing_where_storing_is_off(benchax: Benchax, small_examples: Path) -> None:
    done = benchax("demo", "--max-time", "0.02", "--store", "off")

    assert (done.code, list(small_examples.iterdir())) == (0, [])


@pytest.mark.slow
def test_demo_says_if_its_row_could_not_be_stored(
    benchax: Benchax, small_examples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (small_examples / "taken").write_text("a file")
    monkeypatch.setattr(tempfile, "tempdir", str(small_examples))

    done = benchax("demo", "--max-time", "0.02", "--store", "taken")

    assert done.code == 2
    assert "error: cannot write taken/benchax.db: taken is a file" in done.err
