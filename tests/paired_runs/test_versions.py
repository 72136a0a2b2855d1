"""`compare_ref`, `compare_jax`, `compare_stored`: real repositories, stores and processes; most programs are equal, so
that nothing has to be timed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from git_repositories import git

import benchax
from benchax.checkouts import launch as environments
from benchax.checkouts.launch import Launch, Selection
from benchax.comparing.ranking import Comparisons
from benchax.errors import StoreError, UsageError
from benchax.model import CaseId, Comparison, Version
from benchax.paired_runs.compare import BenchmarkSuite
from benchax.paired_runs.partners import start_partners
from benchax.progress import ProgressEvent
from benchax.store.baselines import rows_of, set_baseline
from benchax.store.comparisons import history
from benchax.store.database import open_store

pytestmark = pytest.mark.usefixtures("kept_pools")

BENCH = """
import benchax, jax
from working import TIMES

@benchax.benchmark(args=("f32[256]",))
def steady(x):
    return x + x

@benchax.benchmark(args=("f32[256]",))
def {name}(x):
    return jax.lax.fori_loop(0, TIMES, lambda i, y: 0.5 * jax.numpy.sin(y) + x, x)
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package in src/ and its benchmarks, committed; `gone` has another name now, and one file is broken."""
    folder = (tmp_path / "project").resolve()
    (folder / "src").mkdir(parents=True)
    (folder / "benchmarks").mkdir()
    (folder / "src" / "working.py").write_text("TIMES = 100\n")
    (folder / "benchmarks" / "bench_work.py").write_text(BENCH.format(name="gone"))
    git(folder, "init", "-q", "-b", "main")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "first")
    (folder / "benchmarks" / "bench_work.py").write_text(BENCH.format(name="added"))
    (folder / "benchmarks" / "bench_broken.py").write_text("raise ValueError('half written')\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder / "src"), *sys.path])
    monkeypatch.delitem(sys.modules, "working", raising=False)
    return folder


def of_run(found: Comparisons) -> dict[str, tuple[str, str]]:
    return {c.case.name: (c.verdict, c.method) for c in found.of("run")}


# ---- another commit ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_commit_beside_now_tells_all_that_is_only_in_one_of_them(repository: Path) -> None:
    steps: list[ProgressEvent] = []

    found = benchax.compare_ref("main", "benchmarks", benchmarks="ref", progress=steps.append)

    assert of_run(found) == {"steady": ("same", "same program")}
    assert (found.new, found.missing) == ((CaseId("added"),), (CaseId("gone"),))
    (broken,) = found.broken
    assert "bench_broken.py cannot be imported: ValueError: half written" in broken.message
    label = f"main ({git(repository, 'rev-parse', 'main')[:8]})"
    assert found.notes == (f"{label}: with the benchmark files of that commit",)
    assert "new: added\nmissing now: gone\n" in str(found)
    assert "half written" in str(found)

    lasting = [step.item for step in steps if step.is_lasting]
    assert steps[0].item == "building main in a worktree"
    assert lasting[0] == found.notes[0]
    assert lasting[1].startswith(f"error: {broken.message}\nTraceback")

    (kept,) = history(open_store(repository / ".benchmarks"), CaseId("steady"))
    assert (kept.baseline.label, kept.candidate.label) == (label, "now")
    assert len(git(repository, "worktree", "list").splitlines()) == 1


@pytest.mark.slow
@pytest.mark.serial
def test_a_slower_commit_is_slower_and_nothing_is_kept_where_the_store_is_off(repository: Path) -> None:
    (repository / "src" / "working.py").write_text("TIMES = 400\n")

    found = benchax.compare_ref("main", ["benchmarks/bench_work.py"], filter="added", store=False)

    assert found.verdicts == {"now": "slower"}
    assert "bench_work.py as now" in found.notes[0]
    assert "--benchmarks ref" in found.notes[0]
    assert not (repository / ".benchmarks").exists()


@pytest.mark.slow
def test_whole_processes_of_a_commit_are_kept_too(repository: Path) -> None:
    found = benchax.compare_ref(
        "main", "benchmarks/bench_work.py", filter="steady", process_pairs=True, max_time_s="1ms", timeout_s="2min"
    )

    run = found.of("run")[0]
    assert (run.method, run.verdict) == ("process pairs", "unclear")
    assert run.why == "there was time for 1 pair of processes, and 8 are the least"
    assert history(open_store(repository / ".benchmarks"), CaseId("steady")) == [run]


# ---- another JAX ------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_versions_of_jax_are_compared_by_processes_and_kept(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment is this one: making another takes a network (test_environments.py)."""
    monkeypatch.setattr(environments, "ensure_environment", lambda version, say: sys.executable)
    version = jax.__version__

    found = benchax.compare_jax(f"{version}, {version}", ["jax.numpy:sin", "f32[8]"], max_time_s="1us")

    run = found.of("run")[0]
    labels = (f"jax {version}", f"jax {version} again")
    assert (run.baseline.label, run.candidate.label, run.method) == (*labels, "process pairs")
    assert history(open_store(project / ".benchmarks"), CaseId("sin")) == [run]


def test_options_reach_the_processes_and_win_over_those_of_a_benchmark(project: Path) -> None:
    (project / "bench_two.py").write_text(
        "import benchax\n"
        "@benchax.benchmark(args=('f32[2]',))\ndef mine(x): return x\n"
        "@benchax.benchmark(args=('f32[2]',), options={'timeout_s': 3})\ndef own(x): return x\n"
    )
    chosen = Selection(("bench_two.py",), options={"timeout_s": 7.5})

    with start_partners([Launch(Version("now"), folder=project)], chosen, None) as (one,):
        limits = {case.name: limit_s for case, (_, limit_s) in one.listing().cases.items()}

    assert limits == {"mine": 7.5, "own": 7.5}


# ---- stored versions --------------------------------------------------------------------------------------------


def stored(folder: Path, fn: Any, *names: str) -> None:
    """Baselines of these names, each of this function, compiled and not run."""
    where = str(folder / ".benchmarks")
    for name in names:
        benchax.bench(fn, "f32[16]", stages="build", store=where, verify=False, memory=False)
        set_baseline(open_store(where), name, rows_of(open_store(where), "last")[0].run_id)


def test_a_stored_baseline_beside_now_and_beside_another_stored_one(project: Path) -> None:
    def f(x: Any) -> Any:
        return jnp.sin(x)

    with pytest.raises(StoreError, match="no database at"):
        benchax.compare_stored()
    stored(project, f, "v1", "v2")
    (project / "bench_f.py").write_text(
        "import benchax, jax.numpy as jnp\n@benchax.benchmark(args=('f32[16]',))\ndef f(x): return jnp.sin(x)\n"
        "@benchax.benchmark(args=('f32[16]',))\ndef g(x): return jnp.cos(x)\n"
    )

    now = benchax.compare_stored("v1", paths=project)
    other = benchax.compare_stored("v1", "v2", filter="f")

    assert (of_run(now), now.new, now.notes) == ({"f": ("same", "same program")}, (CaseId("g"),), ())
    assert of_run(other) == {"f": ("same", "same program")}
    assert [(c.baseline.label, c.candidate.label) for c in other.of("run")] == [("v1", "v2")]
    assert len(benchax.compare_stored("v1", "v2", filter="other")) == 0
    assert history(open_store(project / ".benchmarks"), CaseId("f")) == [*now.of("run"), *other.of("run")]
    # What a stored candidate cannot have is refused.
    with pytest.raises(UsageError, match=r"paths=\['benchmarks'\] is given with the stored candidate 'v1'"):
        benchax.compare_stored("v1", "v1", "benchmarks")
    with pytest.raises(UsageError, match=r"params=\['n=3'\] is given with the stored candidate"):
        benchax.compare_stored("v1", "v1", params="n=3")
    with pytest.raises(UsageError, match=r"'v7' is no baseline, run or commit"):
        benchax.compare_stored("v7")


# ---- what all of them have in common ----------------------------------------------------------------------------


def test_comparisons_that_cannot_be_stored_are_returned_with_the_reason(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    suite = BenchmarkSuite(Selection(), str(file / "store"), lambda step: None)
    found = Comparisons((Comparison(CaseId("f"), "run", Version("a"), Version("b"), "unclear", "because"),))

    with pytest.warns(UserWarning, match=r"the comparisons were not stored: .*file"):
        kept = suite.keep(found)

    assert kept.comparisons == found.comparisons
    assert "file" in kept.unstored
    assert "the comparisons were not stored: " in str(kept)


REF, JAX = benchax.compare_ref, benchax.compare_jax


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: REF("main", benchmarks="theirs"), r"invalid benchmarks='theirs'\nexpected .*now, r"),
        (lambda: REF("main", process_pairs=True, resolution="1%"), "resolution='1%' is given with process_pairs=True"),
        (lambda: REF("main", metrics=("run", "peak")), r"invalid metrics=\['peak'\]\nexpected run, compile"),
        (lambda: REF("main", []), r"paths=\[\] names nothing"),
        (lambda: REF("main", timeout_s="soon"), "option 'timeout_s' in the call cannot be 'soon'"),
        (lambda: REF("main", resolution="0.1%"), "invalid resolution '0.1%'"),
        (lambda: REF("main"), "not a git repository"),
        (lambda: benchax.compare_stored(store="off"), "there are no rows: storing is switched off here"),
        (lambda: JAX("0.9.2"), r"versions=\['0.9.2'\] is not enough\nexpected two versions or more"),
        (lambda: JAX([]), r"versions=\[\] is not enough\nexpected two versions or more"),
        (lambda: JAX(["0.9.2", ""]), r"is not enough\nexpected two versions or more"),
        (lambda: JAX(["0.9.2", "new"]), "'new' is no version of JAX"),
        (lambda: JAX("0.9.2,0.10.2", max_time_s="soon"), "option 'max_time_s' in the call cannot be 'soon'"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_built(project: Path, call: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        call()

    assert list(project.iterdir()) == []
