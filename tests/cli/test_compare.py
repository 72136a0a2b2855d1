"""`benchax compare` and `benchax baseline`, as programs: what they say, and how they end."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

import pytest
import warm_python
from command_line import Benchax
from git_repositories import git
from measurement_strategies import measured

from benchax.cli.compare import FOUND, SEVERAL_LEFT, labels, show_bisected, split_words
from benchax.comparing.ranking import Comparisons
from benchax.model import CaseId
from benchax.paired_runs.bisect import Bisected
from benchax.paired_runs.compare import UNSTORED
from benchax.store.baselines import set_baseline
from benchax.store.comparisons import history
from benchax.store.database import DatabaseStore, open_store

BENCH = """
import benchax, jax, jax.numpy as jnp

def work(x, turns):
    return jax.lax.fori_loop(0, turns, lambda i, y: 0.5 * jnp.sin(y) + x, x)

@benchax.benchmark(args=("f32[256]",))
def steady(x):
    return work(x, 100)

@benchax.benchmark(args=("f32[256]",))
def changing(x):
    return work(x, {turns})
"""


class Project:
    """A folder with benchmarks, and benchax run in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, turns: int = 90, more: str = "") -> None:
        """`turns` of three digits change the size: Python takes a file of the same size and second for unchanged."""
        (self.folder / "bench_work.py").write_text(BENCH.format(turns=turns) + more, encoding="utf-8")

    def benchax(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from benchax.cli.main import main; main()", *arguments]
        environ = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
        return warm_python.run(command, cwd=self.folder, env=environ)

    def baseline(self, name: str = "v1") -> None:
        done = self.benchax("run", "--stages", "build")
        assert done.returncode == 0, done.stderr
        assert self.benchax("baseline", "set", name).returncode == 0


@pytest.fixture
def project(tmp_path: Path) -> Project:
    made = Project(tmp_path)
    made.write()
    return made


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DatabaseStore:
    """Of the project in the working directory; a run in it has the name v1. Nothing was measured."""
    monkeypatch.chdir(tmp_path)
    Project(tmp_path).write()
    store = open_store(tmp_path / ".benchmarks")
    store.append(measured("steady", run="first"))
    set_baseline(store, "v1", "first")
    return store


def verdicts(text: str) -> dict[str, str]:
    """Of each case, from what `--json` wrote."""
    found = [json.loads(line) for line in text.splitlines()]
    return {c["case"]["name"]: c["verdict"] for c in found if c["metric"] == "run"}


@pytest.mark.slow
@pytest.mark.serial
def test_unchanged_code_is_fine_and_a_regression_ends_with_1(project: Project) -> None:
    project.baseline()

    fine = project.benchax("compare", "v1", "--fail-slower", "20%")
    assert (fine.returncode, fine.stdout.count("slower"), fine.stdout.count("faster")) == (0, 0, 0)
    assert "steady and changing: the same program: nothing was timed" in fine.stdout

    project.write(turns=200)
    slower = project.benchax("compare", "v1", "--fail-slower", "20%", "--json")
    assert slower.returncode == 1
    assert verdicts(slower.stdout) == {"steady": "same", "changing": "slower"}
    assert re.search(r"^SLOWER changing: run \+\d+ % \(limit 20 %\)$", slower.stderr, re.MULTILINE)
    assert "Traceback" not in slower.stderr
    (kept,) = history(open_store(project.folder / ".benchmarks"), CaseId("changing"))[-1:]
    assert (kept.baseline.label, kept.candidate.label) == ("v1", "now")
    assert kept.pairs > 100


@pytest.mark.slow
@pytest.mark.serial
def test_two_stored_versions_run_on_random_data_and_without_a_limit_none_fails(project: Project) -> None:
    project.baseline("before")
    project.write(turns=300)
    project.baseline("after")

    done = project.benchax("compare", "before", "after", "-k", "changing")

    assert done.returncode == 0
    assert "slower, confirmed" in done.stdout
    assert "random data of the shapes that they take" in " ".join(done.stdout.split())
    assert "steady" not in done.stdout


@pytest.mark.slow
def test_new_missing_and_failing_cases_are_told_and_fail_as_configured(project: Project) -> None:
    project.write(more='\n@benchax.benchmark(args=("f32[2]",))\ndef gone(x):\n    return x\n')
    project.baseline()
    project.write(more='\n@benchax.benchmark(args=("f32[2]",))\ndef added(x):\n    return x\n')

    told = project.benchax("compare", "v1", "-k", "*e*d*", "--fail-slower", "50%")
    assert "new: added" in told.stderr
    assert told.returncode == 0

    alone = project.benchax("compare", "v1", "-k", "added", "--fail-slower", "50%")
    assert "UNCLEAR: the limit for run judged no case; try another baseline" in alone.stderr
    assert alone.returncode == 3

    (project.folder / "pyproject.toml").write_text('[tool.benchax.gate]\nmissing = "fail"\n')
    missing = project.benchax("compare", "v1", "-k", "*n*")
    assert "missing now: gone" in missing.stderr
    assert missing.returncode == 1


@pytest.mark.slow
def test_a_candidate_that_no_longer_runs_ends_with_2(project: Project) -> None:
    project.baseline()
    path = project.folder / "bench_work.py"
    path.write_text(
        path.read_text().replace("return work(x, 100)\n\n@benchax", "raise ValueError('no more')\n\n@benchax", 1)
    )

    done = project.benchax("compare", "v1", "--fail-slower", "50%")

    assert done.returncode == 2
    assert "ValueError: no more" in done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_what_has_no_program_says_why_and_is_unclear(project: Project) -> None:
    callback = "\n    return jax.pure_callback(lambda v: v, x, x)\n"
    project.write(more='\n@benchax.benchmark(args=("f32[2]",))\ndef calls_back(x):' + callback)
    project.baseline()

    done = project.benchax("compare", "v1", "-k", "calls_back", "--fail-slower", "5%")
    accepted = project.benchax("compare", "v1", "-k", "calls_back", "--fail-slower", "5%", "--ignore-unclear")

    assert (done.returncode, accepted.returncode) == (3, 0)
    assert "UNCLEAR: the limit for run judged no case; try --max-time 15min, " in done.stderr
    assert "UNCLEAR" not in accepted.stderr
    assert "has no program that could run again, because it cannot be exported" in " ".join(done.stdout.split())


def test_names_of_baselines_are_listed_replaced_and_removed(stored: DatabaseStore, benchax: Benchax) -> None:
    first = benchax("baseline", "list").out
    stored.append(measured("steady", run="second"))
    assert benchax("baseline", "set", "v1").code == 0
    second = benchax("baseline", "list").out

    assert first.startswith("v1  run first")
    assert second.startswith("v1  run second")
    assert benchax("baseline", "remove", "v1").code == 0
    assert benchax("baseline", "list").out == ""
    wrong = benchax("baseline", "remove", "v1")
    assert (wrong.code, "there is no baseline 'v1'" in wrong.err) == (2, True)
    assert "cannot be called 'last'" in benchax("baseline", "set", "last").err


def test_comparisons_that_were_not_stored_are_one_line_and_no_warning(
    stored: DatabaseStore, benchax: Benchax, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compare(*_: object, **__: object) -> Comparisons:
        sys.stdout.write("from the user's code\n")
        warnings.warn(f"{UNSTORED}: the disk is full", stacklevel=1)
        return Comparisons(unstored="the disk is full")

    monkeypatch.setattr("benchax.paired_runs.compare.compare_stored", compare)

    done = benchax("compare", "v1")

    assert done.out == ""
    assert done.err.startswith("from the user's code\nerror: the comparisons were not stored: the disk is full\n")


# ---- bisect ----------------------------------------------------------------------------------------------------------


def test_a_commit_that_there_is_not_and_a_folder_without_git_are_refused(repository: Path, benchax: Benchax) -> None:
    assert "there is no commit 'nothing'" in benchax("bisect", "nothing", "main").err
    shutil.rmtree(repository / ".git")
    done = benchax("bisect", "main", "HEAD")
    assert (done.code, "git" in done.err) == (2, True)


def test_the_first_that_is_slower_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_bisected(Bisected(("b",)), lambda one: f"commit {one}") == FOUND

    assert capsys.readouterr().out == "commit b is the first that is slower\n"


def test_the_range_that_is_left_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_bisected(Bisected(("b", "c")), lambda one: f"commit {one}") == SEVERAL_LEFT

    first, *rest = capsys.readouterr().out.splitlines()
    assert first.startswith("one of these 2 is the first that is slower")
    assert rest == ["  commit b", "  commit c"]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    return tmp_path


# ---- functions -------------------------------------------------------------------------------------------------------


MODEL = """
import jax, jax.numpy as jnp

def work(x, turns):
    return jax.lax.fori_loop(0, turns, lambda i, y: jnp.sin(y), x)

def quick(x):
    return work(x, 20)

def slow(x):
    return work(x, 20) + 1e-9 * work(x, 80)

def wrong(x):
    print("traced")
    return work(x, 10)

def broken(x):
    raise ValueError("it is broken")

def called(x, mode, *, seed, baseline):
    assert (mode, seed, baseline) == ("a:b", 3, "this")
    return 2 * x
"""


def compare(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "model.py").write_text(MODEL, encoding="utf-8")
    (folder / "other.py").write_text(MODEL, encoding="utf-8")
    command = [sys.executable, "-c", "from benchax.cli.main import main; main()", "compare", *words]
    environ = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    return warm_python.run(command, cwd=folder, env=environ)


# ---- real rankings ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.serial
def test_the_fastest_right_one_wins_and_a_failure_ends_with_2(tmp_path: Path) -> None:
    functions = [f"model.py:{name}" for name in ("slow", "wrong", "quick", "broken")]

    done = compare(tmp_path, *functions, "f32[4096]", "--json")

    found = json.loads(done.stdout)
    assert done.returncode == 2
    assert found["labels"] == ["slow", "wrong", "quick", "broken"]
    assert [(r["place"], r["label"]) for r in found["ranking"]] == [(1, "quick"), (2, "slow")]
    assert found["unranked"]["wrong"].startswith("its result differs from the result of slow: leaf [0] at [")
    assert found["unranked"]["broken"].startswith("failed: error in build: ValueError: it is broken")
    assert "process 1: 1 of 1 undecided" in done.stderr
    assert "traced" in done.stderr


@pytest.mark.slow
def test_functions_of_one_name_take_any_inputs_and_are_drawn(tmp_path: Path) -> None:
    """Also inputs that have the names of our own options."""
    inputs = ("f32[8]", "'a:b'", "seed=3", "baseline=this")
    options = ("--baseline", "other.py:called", "--max-time", "0.01", "--no-jit", "--plot", "ratios.png")

    done = compare(tmp_path, "model.py:called", "other.py:called", *inputs, *options)

    assert done.returncode == 0, done.stderr
    assert "against other.py:called" in done.stdout
    assert "equal" in done.stdout
    assert "compile" not in done.stdout
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")


# ---- words ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "inputs", [["f32[8]", "3"], ["mode=a:b"], ["'a:b'"], ["{'a': 1}"], ["[slice(1)]", "key"], []], ids=" ".join
)
def test_functions_are_the_words_with_a_colon_that_are_no_values(inputs: Sequence[str]) -> None:
    assert split_words(["a.py:f", "jax.numpy:sort", *inputs]) == (["a.py:f", "jax.numpy:sort"], inputs)


def test_a_function_goes_by_its_name_and_by_the_whole_word_where_two_have_it() -> None:
    assert labels(["a.py:f", "jax:nn.relu", "b.py:f"]) == {
        "a.py:f": "a.py:f",
        "nn.relu": "jax:nn.relu",
        "b.py:f": "b.py:f",
    }
