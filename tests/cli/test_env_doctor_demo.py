"""`benchax env`, `benchax doctor`, `benchax demo`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from source_tree import PACKAGE

import benchax as package
from benchax.cli.main import main


@dataclass(frozen=True)
class Done:
    code: object
    out: str
    err: str


Benchax = Callable[..., Done]


@pytest.fixture
def benchax(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Benchax:
    """Runs the command line in this process."""

    def run(*words: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["benchax", *words])
        with pytest.raises(SystemExit) as end:
            main()
        captured = capsys.readouterr()
        return Done(end.value.code, captured.out, captured.err)

    return run


def strict(text: str) -> dict[str, object]:
    """JSON as the standard has it: without NaN and Infinity."""

    def refuse(token: str) -> None:
        raise AssertionError(f"{token} is not JSON")

    return json.loads(text, parse_constant=refuse)


# ---- env --------------------------------------------------------------------------------------------------------


def test_env_shows_what_is_stored_with_every_row(benchax: Benchax, project: Path) -> None:
    done = benchax("env")

    assert (done.code, done.err) == (0, "")
    labels = [line.split("  ")[1].strip() for line in done.out.splitlines()[1:] if line.startswith("  ") and line[2] != " "]
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
    done = benchax("doctor", "--seconds", "0.1")

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


@pytest.mark.parametrize("seconds", ["0", "-1", "soon"])
def test_doctor_refuses_a_time_without_sense(seconds: str, benchax: Benchax) -> None:
    done = benchax("doctor", "--seconds", seconds)

    assert (done.code, done.out) == (2, "")
    assert "Invalid value for '--seconds'" in done.err


# ---- demo -------------------------------------------------------------------------------------------------------


def demo(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    settings = {name: value for name, value in os.environ.items() if not name.startswith("BENCHAX_")}
    settings |= {"PYTHONPATH": str(PACKAGE.parent), "BENCHAX_MIN_TIME_S": "0.01", "BENCHAX_MAX_WARMUP_S": "0.02"}
    command = [sys.executable, "-m", "benchax.cli.main", "demo", "--max-time", "0.02", *words]
    return subprocess.run(command, cwd=cwd, env=settings, capture_output=True, encoding="utf-8", timeout=120)


def test_demo_stores_three_rows_and_says_when_compiling_pays(tmp_path: Path) -> None:
    done = demo(cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    rows = package.load(tmp_path / ".benchmarks")
    assert [m.case.label for m in rows] == ["mlp", "selu eager", "selu"]
    assert done.stdout.startswith("mlp\n")
    assert "\nCompiling (" in done.stdout
    assert done.stderr.splitlines()[-1] == "Stored. See them again: benchax list; benchax show last"


def test_demo_leaves_nothing_where_storing_is_off(tmp_path: Path) -> None:
    done = demo("--store", "off", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert list(tmp_path.iterdir()) == []
    assert "Stored" not in done.stderr


def test_demo_does_not_claim_to_have_stored_what_it_could_not(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")

    done = demo("--store", "taken", cwd=tmp_path)

    assert done.returncode == 2
    assert "Stored" not in done.stderr
