"""`compare_ref`, `compare_jax`, `compare_stored`: compare two versions of a suite of benchmarks.

    another commit, built in a git worktree    ┐  its programs against the functions of now,
    stored rows                                ┘  in one process after the other              → session.py
    another JAX, or a commit and its Python    pairs of whole processes                       → process_pairs.py

The store keeps the results, for `benchax history`. `benchax compare` does the same on the command line.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from benchax.case import Case
from benchax.checkouts.launch import Selection, check_version, launch_jax
from benchax.checkouts.worktrees import build_checkout, label_commit, launch_checkout
from benchax.comparing.judging import resolution_of
from benchax.comparing.ranking import Comparisons
from benchax.comparing.sequential import RUN, TIMES, Effort, effort_for
from benchax.discovery import collect, matches
from benchax.environment import capture
from benchax.errors import StoreError, UsageError, one_of
from benchax.keywords import guard_keywords
from benchax.measuring.sides import Side
from benchax.model import CaseId, Comparison, Environment, Failure, Measurement, Options, Remark, Version
from benchax.options import check, resolve
from benchax.paired_runs import session
from benchax.paired_runs.paired_run import PairedRun
from benchax.paired_runs.process_pairs import compare_launches
from benchax.progress import Listener, Progress, ProgressEvent, show_progress
from benchax.stats.verdicts import SAME_WITHIN
from benchax.store import comparisons
from benchax.store.baselines import by_case, program, rows_of
from benchax.store.database import DatabaseStore, open_store
from benchax.units import read_duration

# ---- stored ----------------------------------------------------------------------------------------------------------
#
# Paired runs with a stored baseline: its program runs again, together with the candidate's function or program.
#
# No stored time is compared: two sessions differ by 30 % and more for reasons that are not in the code.


T = TypeVar("T")


@dataclass
class Pairing:
    """The paired runs of two versions of a suite, and the cases that have none."""

    paired_runs: list[PairedRun] = field(default_factory=list[PairedRun])
    without: list[Comparison] = field(default_factory=list[Comparison])
    """Cases that both have, and that cannot be compared; they say why."""
    new: list[CaseId] = field(default_factory=list[CaseId])
    """Only the candidate has them."""
    missing: list[CaseId] = field(default_factory=list[CaseId])
    """Only the baseline has them."""
    broken: list[Failure] = field(default_factory=list[Failure])
    """The failures of files of benchmarks that cannot be imported now."""


def pair_with_cases(
    store: DatabaseStore,
    label: str,
    baseline: Mapping[CaseId, Measurement],
    cases: Iterable[Case],
    here: Environment,
    command_line: Mapping[str, object] | None = None,
) -> Pairing:
    """Pairs stored rows with the current functions.

    Args:
        label: the label of the baseline.
        here: the environment of the candidate.
        command_line: options, as for `api.run`.
    """

    def pair(row: Measurement, case: Case) -> PairedRun | Comparison:
        old, new = _version(row, label), Version("now", here.commit, here.is_dirty, here.jax)
        content, why = _program(store, row, here)
        if content is None:
            return Comparison(case.id, "run", old, new, "unclear", why)
        options = resolve(None, case.options, command_line, project=case.folder)
        sides = (Side(old.label, program=content), Side(new.label, case))
        return PairedRun(case.id, sides, (old, new), options, tuple(_remarks(row, here)))

    return _pair_each(baseline, {case.id: case for case in cases}, pair)


def pair_with_rows(
    store: DatabaseStore,
    labels: tuple[str, str],
    baseline: Mapping[CaseId, Measurement],
    candidate: Mapping[CaseId, Measurement],
    here: Environment,
    options: Options,
) -> Pairing:
    """Pairs two stored versions, on random data of their shapes."""

    def pair(old: Measurement, new: Measurement) -> PairedRun | Comparison:
        versions = (_version(old, labels[0]), _version(new, labels[1]))
        programs = [_program(store, old, here), _program(store, new, here, labels[1])]
        if missing := next((why for content, why in programs if content is None), ""):
            return Comparison(new.case, "run", *versions, "unclear", missing)
        sides = tuple(Side(v.label, program=content) for v, (content, _) in zip(versions, programs, strict=True))
        data = Remark("random-data", "info", "both ran on random data of the shapes that they take")
        notes = (data, *_remarks(old, here), *_remarks(new, here, labels[1]))
        return PairedRun(new.case, sides, versions, options, notes)

    return _pair_each(baseline, candidate, pair)


def _pair_each(
    baseline: Mapping[CaseId, Measurement],
    candidate: Mapping[CaseId, T],
    pair: Callable[[Measurement, T], PairedRun | Comparison],
) -> Pairing:
    """Pairs the cases that both have. A pair that can't be compared gives the reason."""
    made = [pair(baseline[id], one) for id, one in candidate.items() if id in baseline]
    return Pairing(
        [each for each in made if isinstance(each, PairedRun)],
        [each for each in made if isinstance(each, Comparison)],
        [id for id in candidate if id not in baseline],
        [id for id in baseline if id not in candidate],
    )


def _version(row: Measurement, label: str) -> Version:
    env = row.environment
    return Version(label, env.commit, env.is_dirty, None, row.program.sha256 if row.program else None)


def _program(
    store: DatabaseStore, row: Measurement, here: Environment, whose: str = "its baseline"
) -> tuple[bytes | None, str]:
    """(content, "") or (None, why there is nothing that could run)."""
    was = row.environment
    if was.backend != here.backend:
        return None, f"{whose} was measured on {was.backend}, and this is {here.backend}"
    content = program(store, row)
    if content is not None:
        return content, ""
    if row.failure is not None:
        return None, f"{whose} ended with {row.failure.kind.replace('_', ' ')} in {row.failure.stage}"
    why = row.why_absent("program") or "it was stored by a benchax that kept none"
    return None, f"{whose} has no program that could run again, because {why}"


def _remarks(row: Measurement, here: Environment, whose: str = "the baseline") -> Iterator[Remark]:
    was = row.environment
    if (was.jax, was.jaxlib) != (here.jax, here.jaxlib):
        text = f"{whose} was made by jax {was.jax}, and both ran under jax {here.jax}: what JAX changed is in neither"
        yield Remark("other-jax", "info", text)
    if was.device_kind != here.device_kind:
        text = f"{whose} was measured on {was.device_kind}, and both ran on {here.device_kind}"
        yield Remark("other-device", "info", text)


# ---- suite -----------------------------------------------------------------------------------------------------------
#
# A suite of benchmarks, for comparing two versions of it. `compare_ref`, `compare_jax` and `compare_stored` share this
# code, from their arguments to the store that keeps the comparisons.


Store = str | os.PathLike[str] | bool | None
Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
OFF = "off"
UNSTORED = "the comparisons were not stored"


@dataclass(frozen=True)
class BenchmarkSuite:
    """The benchmarks to compare, their options, and the listener for progress."""

    selection: Selection
    store: str
    report: Listener

    def tell(self, text: str, *, is_lasting: bool = False) -> None:
        self.report(ProgressEvent(text, is_lasting=is_lasting))

    def opened(self) -> DatabaseStore:
        """Raises `UsageError` if nothing is stored."""
        if self.store == OFF:
            problem = "there are no rows: storing is switched off here"
            raise UsageError(problem, "a folder", "name it with --store, or store=")
        return open_store(self.store)

    def stored_rows(self, reference: str) -> dict[CaseId, Measurement]:
        rows = by_case(rows_of(self.opened(), reference))
        return {id: row for id, row in rows.items() if matches(id, self.selection.pattern)}

    def pair_with_now(self, store: DatabaseStore, label: str, rows: Mapping[CaseId, Measurement]) -> Pairing:
        """Rows of the baseline, whose programs `store` has, with the functions of now."""
        chosen = self.selection
        cases, broken = collect(chosen.what, chosen.pattern, chosen.params)
        for each in broken:
            self.tell(f"error: {each.message}\n{each.traceback}", is_lasting=True)
        found = pair_with_cases(store, label, rows, cases, self.environment(), chosen.options)
        found.broken = broken
        return found

    def environment(self) -> Environment:
        """The environment. The store is usually in the repository, and does not count as a change of the tree."""
        is_elsewhere = self.store == OFF or "://" in self.store
        return capture(Path.cwd(), besides=None if is_elsewhere else Path(self.store))

    def run(self, pairing: Pairing, effort: Effort) -> Comparisons:
        tests = session.run_tests(pairing.paired_runs, effort, self.report)
        return Comparisons(
            (*(c for test in tests for c in test.comparisons()), *pairing.without),
            new=tuple(pairing.new),
            missing=tuple(pairing.missing),
            broken=tuple(pairing.broken),
        )

    def keep(self, found: Comparisons) -> Comparisons:
        """Keeps the comparisons for `benchax history`. If that fails, they are still returned: they took minutes to
        measure.
        """
        if self.store == OFF or not found:
            return found
        try:
            comparisons.append(open_store(self.store), found)
        except StoreError as error:
            warnings.warn(f"{UNSTORED}: {error}", stacklevel=4)  # 4: whoever called `compare_ref`, past its guard
            return replace(found, unstored=str(error))
        return found


@contextmanager
def open_suite(
    paths: Paths,
    pattern: str,
    params: Sequence[str],
    options: Mapping[str, Any],
    store: Store,
    progress: Progress,
) -> Generator[BenchmarkSuite]:
    """A suite, for as long as its progress is shown. Invalid requests are refused here, before any build."""
    words = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not words:
        raise UsageError(f"paths={paths!r} names nothing", "folders, files, or a function and its inputs")
    given = check({**options, "store": store}, "the call")
    known = {name: value for name, value in given.items() if value is not None}
    where = resolve(command_line=known).store or OFF
    texts = (params,) if isinstance(params, str) else tuple(params)
    selection = Selection(tuple(os.fspath(word) for word in words), pattern, texts, known)
    with show_progress(progress) as report:
        yield BenchmarkSuite(selection, where, report)


ENOUGH = "two versions or more, such as 0.9.2,0.10.2"


@guard_keywords()
def compare_ref(
    ref: str,
    paths: Paths = ".",
    *,
    benchmarks: str = "now",
    process_pairs: bool = False,
    filter: str = "",
    params: Sequence[str] = (),
    resolution: float | str = SAME_WITHIN,
    metrics: Sequence[str] = ("run",),
    max_time_s: float | str | None = None,
    timeout_s: float | str | None = None,
    seed: int | None = None,
    store: Store = None,
    progress: Progress = None,
) -> Comparisons:
    """Compares the current benchmarks with those at another commit of this repository.

    benchax builds the other commit in a git worktree, which it removes afterwards. The programs of that commit then run
    alternately with the current functions, as in `compare`. The repository is the one that holds the working folder.
    "Now" is the state of this process: benchmark files are read again, but modules that were imported before an edit
    are not.

    Args:
        ref: a commit, branch or tag: the baseline.
        paths: folders and files with benchmarks, or a function and its inputs: ["jax.numpy:sort", "f32[1000]"].
        benchmarks: whose benchmark files run at `ref`: the files of "now" or of "ref". Files of now that do not run at
            `ref` are replaced by those of `ref`; `notes` names them.
        process_pairs: runs whole processes alternately on one core, so that time in Python is compared as well.
        filter: cases whose name contains this, or matches it if it has * or ?.
        params: values instead of a parameter's own: ["n=128,256"].
        resolution: "same" means within this share, such as 0.01 or "1%"; the finer, the longer it takes.
        metrics: go on until these are clear, and confirm their changes: "run", "compile". Pairs of processes always
            judge both.
        max_time_s: begin no further process after this long (2.5, "500ms"); half of it is for confirming changes.
        timeout_s: of each stage in the worker processes.
        seed: of the data made from specs.
        store: folder of the database in which the comparisons are kept, or "off".
        progress: a function of `ProgressEvent`s, True, False, or None: at a terminal, after two seconds.

    Returns:
        Comparisons: also for cases that cannot be compared, with the reason. `new` and `missing` are cases of one
        version only. `broken` are files that cannot be imported now.

    Raises:
        UsageError: no git repository, no such commit, benchmarks that cannot be built there, nothing to compare, or
            an option that is not permitted.

    Example:
        >>> r = benchax.compare_ref("HEAD", "benchmarks", store="off")
        >>> [(c.case.name, c.verdict) for c in r.of("run")]
        [('double', 'same')]
    """
    if benchmarks not in ("now", "ref"):
        raise UsageError(f"benchmarks={benchmarks!r} cannot be", one_of(("now", "ref"), benchmarks))
    effort = _make_effort(resolution, max_time_s, metrics)
    if process_pairs and resolution_of(resolution) != SAME_WITHIN:
        raise UsageError(
            f"resolution={resolution!r} is given with process_pairs=True",
            "one of them: pairs of processes differ by 1 to 10 % on unchanged code, so they resolve 5 % at best",
        )
    with open_suite(paths, filter, params, {"timeout_s": timeout_s, "seed": seed}, store, progress) as suite:
        if process_pairs:
            with launch_checkout(ref, suite.selection.what, benchmarks == "ref") as sides:
                found = compare_launches(sides, suite.selection, effort.max_time_s, suite.report)
            return suite.keep(Comparisons(tuple(found)))
        return suite.keep(_compare_builds(suite, ref, benchmarks, effort))


def _compare_builds(suite: BenchmarkSuite, ref: str, benchmarks: str, effort: Effort) -> Comparisons:
    """Compares the programs of a worktree with the functions of now."""
    suite.tell(f"building {ref} in a worktree")
    with build_checkout(ref, suite.selection, benchmarks == "ref") as other:
        label = label_commit(ref, other.commit)
        note = other.note or f"{label}: with the benchmark files {other.benchmarks}"
        suite.tell(f"note: {note}" if other.note else note, is_lasting=True)
        pairing = suite.pair_with_now(other.store, label, other.rows)
        return replace(suite.run(pairing, effort), notes=(note,))


@guard_keywords()
def compare_jax(
    versions: Sequence[str] | str,
    paths: Paths = ".",
    *,
    filter: str = "",
    params: Sequence[str] = (),
    max_time_s: float | str | None = None,
    timeout_s: float | str | None = None,
    seed: int | None = None,
    store: Store = None,
    progress: Progress = None,
) -> Comparisons:
    """Compares benchmarks under several versions of JAX with the first one. Each version has its own environment.

    Whole processes run alternately on one core. Such pairs differ by 1 to 10 % on unchanged code, so there is no
    `resolution`: "same" means within 5 %.

    Args:
        versions: of JAX, in a list or as "0.9.2,0.10.2"; the first is the baseline. A version that is named twice is
            compared with itself. Environments are made once, and kept in the user's cache folder.
        paths, filter, params, timeout_s, seed, store, progress: as for `compare_ref`.
        max_time_s: for each version: begin no further pair of processes after this long.

    Raises:
        UsageError: fewer than two versions, a version that does not exist, nothing to compare, or an option that is not
            permitted.
        NotAvailable: a version cannot be installed.

    Example:
        >>> r = benchax.compare_jax("0.9.2,0.10.2", "benchmarks")  # doctest: +SKIP
        >>> [(c.case.name, c.verdict) for c in r.of("run")]  # doctest: +SKIP
        [('double', 'same')]
    """
    listed = [version.strip() for version in versions.split(",")] if isinstance(versions, str) else list(versions)
    limit_s = read_duration("max_time_s", max_time_s)
    if len(listed) < 2 or not all(listed):
        raise UsageError(f"versions={listed!r} is not enough", ENOUGH)
    for version in listed:
        check_version(version)
    with open_suite(paths, filter, params, {"timeout_s": timeout_s, "seed": seed}, store, progress) as suite:
        labels = _label_each(listed)
        first, *others = [launch_jax(each, label, suite.tell) for each, label in zip(listed, labels, strict=True)]
        found = [
            c for other in others for c in compare_launches((first, other), suite.selection, limit_s, suite.report)
        ]
        return suite.keep(Comparisons(tuple(found)))


def _label_each(versions: Sequence[str]) -> list[str]:
    return [f"jax {v}{' again' * (v in versions[:i])}" for i, v in enumerate(versions)]


@guard_keywords()
def compare_stored(
    baseline: str = "last",
    candidate: str | None = None,
    paths: Paths = ".",
    *,
    filter: str = "",
    params: Sequence[str] = (),
    resolution: float | str = SAME_WITHIN,
    metrics: Sequence[str] = ("run",),
    max_time_s: float | str | None = None,
    timeout_s: float | str | None = None,
    seed: int | None = None,
    store: Store = None,
    progress: Progress = None,
) -> Comparisons:
    """Compares stored programs with the current benchmarks, or with the programs of another stored version.

    No stored time is compared: the programs run again. Two stored versions run on random data of their shapes.

    Args:
        baseline: a name given by `benchax baseline`, "last" (the newest run), a run, a commit, or the first digits of
            one.
        candidate: such a name, too; default: the current benchmarks, which are in `paths`.
        paths, params: as for `compare_ref`; not with a stored candidate.
        store: folder of the database that has the rows, and in which the comparisons are kept.
        filter, resolution, metrics, max_time_s, timeout_s, seed, progress: as for `compare_ref`.

    Returns:
        Comparisons: as for `compare_ref`.

    Raises:
        UsageError: a name that means nothing in this store, nothing to compare, or an option that is not permitted.
        StoreError: there is no database, or it cannot be read.

    Example:
        >>> r = benchax.compare_stored("last", paths="benchmarks")
        >>> [(c.case.name, c.verdict) for c in r.of("run")]
        [('double', 'same')]
    """
    effort = _make_effort(resolution, max_time_s, metrics)
    with open_suite(paths, filter, params, {"timeout_s": timeout_s, "seed": seed}, store, progress) as suite:
        rows = suite.stored_rows(baseline)
        if candidate is None:
            pairing = suite.pair_with_now(suite.opened(), baseline, rows)
        else:
            # Stored rows are all there is of a stored candidate: no file is looked at, and no value can be put in.
            chosen = suite.selection
            for name, value, default in (("paths", chosen.what, (".",)), ("params", chosen.params, ())):
                if value != default:
                    problem = f"{name}={list(value)!r} is given with the stored candidate {candidate!r}"
                    raise UsageError(problem, "one of them", "choose among stored cases with --filter, or filter=")
            labels, others = (baseline, candidate), suite.stored_rows(candidate)
            options = resolve(command_line=suite.selection.options)
            pairing = pair_with_rows(suite.opened(), labels, rows, others, suite.environment(), options)
        return suite.keep(suite.run(pairing, effort))


def _make_effort(resolution: float | str, max_time_s: float | str | None, metrics: Sequence[str]) -> Effort:
    wanted = {metrics} if isinstance(metrics, str) else set(metrics)
    if unknown := sorted(wanted - TIMES):
        counted = "bytes and operations are counted, which needs no option"
        raise UsageError(f"metrics={unknown} cannot be", "run, compile, or both", counted)
    limit_s = read_duration("max_time_s", max_time_s)
    return effort_for(resolution_of(resolution), limit_s, TIMES if "compile" in wanted else RUN)
