"""`benchax env`, `benchax doctor`, `benchax demo`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import Benchax, Done
from comparisons_by_hand import compared
from source_tree import PACKAGE

import benchax as package
from benchax import demo as examples
from benchax.case import make_case
from benchax.comparing.error_rates import ErrorRates, Trial
from benchax.paired_runs import protocol
from benchax.progress import Listener, ProgressEvent


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
    assert done.err.startswith("observing this machine")


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


@pytest.mark.slow
def test_a_loop_that_jits_a_new_function_in_each_turn_compiles_in_each_turn(benchax: Benchax) -> None:
    done = benchax("demo", "watch")

    rows = [line.split("  ") for line in done.out.splitlines()[1:4]]
    assert {row[0]: next(filter(None, row[1:])).strip() for row in rows} == {
        "jax.jit(partial(body))": "20",
        "jax.jit(lambda i: body(i))": "20",
        "jax.jit(body)": "0",
    }
    assert "partial(body) at example.py:19: new function object" in done.out
    assert "<lambda> at example.py:26: new function object" in done.out
    assert "20 iterations of one loop" in done.err
    assert done.code == 0


# ---- doctor --aa: rounds are made up --------------------------------------------------------------------------

Doctor = Callable[..., Done]
TRIALS = (Trial("steps", 0.0, compared(0, 1.0)), Trial("steps", 0.05, compared(1, 1.05)))


@pytest.fixture
def limits() -> list[float]:
    """What the protocol was given."""
    return []


@pytest.fixture
def doctor(benchax: Benchax, monkeypatch: pytest.MonkeyPatch, limits: list[float]) -> Doctor:
    """Runs the command with rounds that end as `ends` says: after so many of them, by Ctrl-C or by themselves."""

    def run(*words: str, rounds: int = 2, is_stopped: bool = False) -> Done:
        def made_up(max_time_s: float, report: Listener) -> Iterator[ErrorRates]:
            limits.append(max_time_s)
            for n in range(1, rounds + 1):
                report(ProgressEvent("process 1: 2 of 2 undecided", "steps · rounds"))
                yield ErrorRates(TRIALS * n, 4.0 * n)
            if is_stopped:
                raise KeyboardInterrupt

        monkeypatch.setattr(protocol, "measure_rounds", made_up)
        return benchax("doctor", *words)

    return run


def test_the_table_is_that_of_the_last_round(doctor: Doctor) -> None:
    done = doctor("--aa")

    assert done.code == 0
    assert "In 2 comparisons of unchanged code benchax reported slower never" in done.out
    assert "A verdict took 2.0 s." in done.out
    assert "process 1: 2 of 2 undecided\n2 verdicts after 4 s\n" in done.err


@pytest.mark.parametrize(("words", "limit_s"), [((), 180.0), (("--max-time", "2min"), 120.0)])
def test_it_takes_three_minutes_or_as_long_as_it_is_told(
    words: tuple[str, ...], limit_s: float, doctor: Doctor, limits: list[float]
) -> None:
    doctor("--aa", *words)

    assert limits == [limit_s]


def test_ctrl_c_shows_what_there_is_and_claims_nothing_before_the_end_of_a_round(doctor: Doctor) -> None:
    one, none = doctor("--aa", rounds=1, is_stopped=True), doctor("--aa", rounds=0, is_stopped=True)

    assert (one.code, none.code, none.out) == (130, 130, "")
    assert "In 1 comparison of unchanged code" in one.out
    assert "no round was finished, so nothing is known" in none.err


def test_as_json_it_is_one_object(doctor: Doctor) -> None:
    found = json.loads(doctor("--aa", "--json").out)

    assert [(change["planted"], change["judged"]) for change in found["changes"]] == [(0.0, 2), (0.05, 2)]
