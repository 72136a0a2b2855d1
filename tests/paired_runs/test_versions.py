"""`compare_ref`, `compare_jax`, `compare_stored`: real repositories, stores and processes; most programs are equal, so
that nothing has to be timed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from git_repositories import git
from measuring.conftest import SHORT

import benchax
from benchax.case import Case, make_case
from benchax.checkouts import launch as environments
from benchax.checkouts.launch import Launch, Selection
from benchax.checkouts.partners import Partner
from benchax.comparing.ranking import Comparisons
from benchax.environment import capture
from benchax.errors import StoreError, UsageError
from benchax.measuring.engine import measure
from benchax.measuring.paired import PairedRequest, take_blocks
from benchax.model import Absent, CaseId, Comparison, Environment, Failure, Measurement, Version
from benchax.paired_runs.compare import BenchmarkSuite, StoredVersion, pair_with_cases, pair_with_rows
from benchax.paired_runs.paired_run import PairedRun
from benchax.progress import ProgressEvent
from benchax.store.baselines import by_case, rows_of, set_baseline
from benchax.store.comparisons import history
from benchax.store.database import DatabaseStore, open_store

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
    assert "both versions ran the current bench_work.py" in found.notes[0]
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
    """The environment is this one: making another takes a network (tests/checkouts/test_launch.py)."""
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

    with closing(Partner(Launch(Version("now"), folder=project), chosen)) as one:
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
    with pytest.raises(UsageError, match=r"'v7' isn't a baseline, run or commit"):
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
        (lambda: REF("main", resolution="0.1%"), "invalid resolution '0.1%'"),
        (lambda: REF("main"), "not a git repository"),
        (lambda: benchax.compare_stored(store="off"), "there are no rows: storing is switched off here"),
        (lambda: JAX("0.9.2"), r"versions=\['0.9.2'\] is not enough\nexpected two versions or more"),
        (lambda: JAX([]), r"versions=\[\] is not enough\nexpected two versions or more"),
        (lambda: JAX(["0.9.2", ""]), r"is not enough\nexpected two versions or more"),
        (lambda: JAX(["0.9.2", "new"]), "'new' isn't a version of JAX"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_built(project: Path, call: Any, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        call()

    assert list(project.iterdir()) == []


# ---- which stored rows meet which functions ------------------------------------------------------------------------


STORED = replace(SHORT, store="somewhere", stages="build", memory=False)


def case(name: str, fn: Callable[..., Any] = jnp.sin, **options: Any) -> Case:
    return replace(make_case(fn, ("f32[16]",), name=name), options=options)


@pytest.fixture
def store(tmp_path: Path) -> DatabaseStore:
    return open_store(tmp_path)


@pytest.fixture
def here() -> Environment:
    return replace(capture(), commit="c0ffee", is_dirty=True)


def kept(
    store: DatabaseStore, *cases: Case, label: str = "v1", change: Callable[[Measurement], Measurement] = lambda m: m
) -> StoredVersion:
    """A version of these cases, as the store gives it back."""
    for each in cases:
        store.append(change(measure(each, STORED, run_id="r1")))
    return StoredVersion(label, by_case(store.query()), store)


def blocks_of(paired_run: PairedRun) -> Any:
    return take_blocks(PairedRequest(paired_run.sides, blocks=1), lambda stage, **facts: None)


# ---- a stored row beside a function -----------------------------------------------------------------------------


def test_a_stored_program_meets_the_function_of_now_and_outputs_that_differ_are_seen(
    store: DatabaseStore, here: Environment
) -> None:
    old = kept(store, case("gone"), case("f"), case("g"))

    cases = [case("f", timeout_s="3s"), case("g", jnp.cos), case("fresh")]
    paired_runs, rest = pair_with_cases(old, cases, here, {"seed": 7})

    assert ([*rest], rest.new, rest.missing) == ([], (CaseId("fresh"),), (CaseId("gone"),))
    first, second = paired_runs
    assert (first.case, first.remarks, first.options.timeout_s, first.options.seed) == (CaseId("f"), (), 3.0, 7)
    before, now = first.versions
    assert (before.label, before.program, before.jax) == ("v1", old.rows[CaseId("f")].program.sha256, None)
    assert (now.label, now.commit, now.is_dirty, now.jax) == ("now", "c0ffee", True, here.jax)
    assert [(side.label, side.program is not None) for side in first.sides] == [("v1", True), ("now", False)]
    documents = [blocks_of(paired_run) for paired_run in (first, second)]
    assert [document.failure for document in documents] == [None, None]
    assert [document.sides[1].agreement.agrees for document in documents] == [True, False]


# ---- where there is nothing to run ------------------------------------------------------------------------------


def of_another_backend(m: Measurement) -> Measurement:
    return replace(m, environment=replace(m.environment, backend="tpu"))


def failed(m: Measurement) -> Measurement:
    return replace(m, program=None, failure=Failure("out_of_memory", "first run", "no room"))


def not_exported(m: Measurement) -> Measurement:
    return replace(m, program=None, not_measured=(Absent("program", "it donates its arguments"),))


def of_an_old_benchax(m: Measurement) -> Measurement:
    return replace(m, program=None, not_measured=())


def without_content(m: Measurement) -> Measurement:
    assert m.program is not None
    return replace(m, program=replace(m.program, sha256="0" * 64, content=None))


NONE_KEPT = "its baseline has no program that could run again, because it was stored by a benchax that kept none"
WHY = {
    of_another_backend: "its baseline was measured on tpu, and this is cpu",
    failed: "its baseline ended with out of memory in first run",
    not_exported: "its baseline has no program that could run again, because it donates its arguments",
    of_an_old_benchax: NONE_KEPT,
    without_content: NONE_KEPT,
}


@pytest.mark.parametrize("change", WHY, ids=lambda change: change.__name__)
def test_a_row_that_cannot_run_again_is_unclear_and_says_why(
    change: Callable[[Measurement], Measurement], store: DatabaseStore, here: Environment
) -> None:
    old = kept(store, case("f"), change=change)

    for paired_runs, rest in (
        pair_with_cases(old, [case("f")], here),
        pair_with_rows(old, replace(old, label="v2"), here, STORED),
    ):
        (comparison,) = rest
        assert paired_runs == []
        assert (comparison.verdict, comparison.why) == ("unclear", WHY[change])
        assert (comparison.ratio, comparison.baseline.label) == (None, "v1")


def test_the_newer_row_may_be_the_one_that_cannot_run(store: DatabaseStore, here: Environment) -> None:
    old = kept(store, case("f"))
    newer = StoredVersion("v2", {id: not_exported(m) for id, m in old.rows.items()}, store)

    _, (comparison,) = pair_with_rows(old, newer, here, STORED)

    assert comparison.why == "v2 has no program that could run again, because it donates its arguments"


# ---- two stored rows --------------------------------------------------------------------------------------------


def test_two_stored_programs_run_on_random_data(store: DatabaseStore, here: Environment) -> None:
    old = kept(store, case("f"))
    new = kept(store, case("f", jnp.cos), label="v2")

    (paired_run,), _ = pair_with_rows(old, new, here, STORED)

    assert [v.label for v in paired_run.versions] == ["v1", "v2"]
    assert paired_run.options == STORED
    assert [r.code for r in paired_run.remarks] == ["random-data"]
    assert blocks_of(paired_run).signature == "f32[16]"


# ---- another JAX ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("was", "code", "text"),
    [
        (
            {"jax": "0.9.2", "jaxlib": "0.9.2"},
            "other-jax",
            "the baseline was made by jax 0.9.2, and both ran under jax {here.jax}: neither shows the changes in JAX",
        ),
        (
            {"device_kind": "another cpu"},
            "other-device",
            "the baseline was measured on another cpu, and both ran on {here.device_kind}",
        ),
    ],
)
def test_a_baseline_of_another_jax_or_device_is_labelled(
    was: dict[str, Any], code: str, text: str, store: DatabaseStore, here: Environment
) -> None:
    old = kept(store, case("f"), change=lambda m: replace(m, environment=replace(m.environment, **was)))

    (paired_run,), _ = pair_with_cases(old, [case("f")], here)

    assert [(r.code, r.message) for r in paired_run.remarks] == [(code, text.format(here=here))]


def test_of_two_rows_each_is_labelled_by_its_jax(store: DatabaseStore, here: Environment) -> None:
    old = kept(store, case("f"))
    rows = {id: replace(m, environment=replace(m.environment, jax="0.9.2")) for id, m in old.rows.items()}

    (paired_run,), _ = pair_with_rows(old, StoredVersion("v2", rows, store), here, STORED)

    assert [r.message.partition(",")[0] for r in paired_run.remarks if r.code == "other-jax"] == [
        "v2 was made by jax 0.9.2"
    ]
