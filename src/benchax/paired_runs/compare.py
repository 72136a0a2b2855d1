"""`compare`: functions that should do the same, side by side. `compare_ref`, `compare_jax`, `compare_stored`: two
versions of a suite of benchmarks.

    functions, side by side                    ┐
    another commit, built in a git worktree    │  in one process after the other              → session.py
    stored rows, against the functions of now  ┘
    another JAX, or a commit and its Python    pairs of whole processes                       → process_pairs.py

The store keeps the results of suites, for `benchax history`. `benchax compare` does the same on the command line.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchax.case import Case, make_case
from benchax.checkouts.launch import ENOUGH, Selection, check_version, launch_jax
from benchax.checkouts.worktrees import build_checkout, label_commit, launch_checkout
from benchax.comparing.judging import ComparisonEvidence, confirm, judge, resolution_of
from benchax.comparing.ranking import Comparisons, Rank, is_failure_of, rank_versions, unranked_reason
from benchax.comparing.sequential import RUN, TIMES, Effort, SequentialTest, effort_for
from benchax.discovery import collect, matches
from benchax.environment import capture
from benchax.errors import StoreError, UsageError, one_of
from benchax.keywords import guard_keywords
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.paired import Side
from benchax.model import CaseId, Comparison, Environment, Failure, Measurement, Options, Remark, Version
from benchax.options import check, resolve
from benchax.paired_runs import session
from benchax.paired_runs.paired_run import PairedRun, PairedSamples
from benchax.paired_runs.process_pairs import compare_launches
from benchax.progress import Listener, Progress, ProgressEvent, show_progress
from benchax.stats.verdicts import CONFIRMING_ALPHA, SAME_WITHIN
from benchax.store import comparisons
from benchax.store.baselines import by_case, program, rows_of
from benchax.store.database import DatabaseStore, open_store
from benchax.units import read_duration
from benchax.workers import pickling
from benchax.wrappers import name_of

Functions = Mapping[str, Callable[..., Any]] | Sequence[Callable[..., Any]]


@guard_keywords()
def compare(
    functions: Functions,
    /,
    *args: Any,
    baseline: str | None = None,
    name: str | None = None,
    static: Iterable[int | str] | int | str = (),
    donate: Iterable[int | str] | int | str = (),
    jit: bool = True,
    resolution: float | str = SAME_WITHIN,
    max_time_s: float | str | None = None,
    timeout_s: float | str | None = None,
    memory_limit_bytes: int | str | None = None,
    seed: int | None = None,
    progress: Progress = None,
    **kwargs: Any,
) -> Comparisons:
    """Runs all functions side by side on the same inputs. Reports the faster ones, and how certain that is.

    Samples of all functions alternate in random order, in fresh processes one after the other, until every verdict is
    clear. There are 2 to 8 processes, and up to 24 to find changes below 5 %. A change is reported only if a second
    measurement, in separate processes, confirms it. An unchanged function is called slower in less than 1 % of
    comparisons (docs/explanations/trust.md).

    Some functions have a line but no place in the ranking: those that fail, and those whose results differ from the
    baseline's by more than rounding (`numerics`). If the baseline itself fails, the next function is the baseline
    instead.

    Args:
        functions: by label, or in a list (labels are their names). At least two, called with the same arguments.
        args, kwargs: arrays, pytrees, specs such as "f32[1024,1024]".
        baseline: the label that the others are compared with; default: the first.
        name: of the case; default: the name of the baseline's function.
        static, donate, jit: as for `bench`, for all functions.
        resolution: "same" means within this share, such as 0.01 or "1%"; the finer, the longer it takes.
        max_time_s: begin no further process after this long (2.5, "500ms"); half of it is for confirming changes.
        timeout_s, memory_limit_bytes: limits of each stage in the worker processes.
        seed: of the data made from specs.
        progress: a function of `ProgressEvent`s, True, False, or None: at a terminal, after two seconds.

    Raises:
        UsageError: fewer than two functions, two of one label, a baseline that is not one of them, a resolution that is
            not a share between 0.5 % and 20 %, a time that cannot be read.

    Example:
        >>> r = benchax.compare({"loop": lambda x: sum(x), "sum": lambda x: x.sum(axis=0)}, "f32[8,8]", max_time_s=1)
        >>> [*r.verdicts]
        ['sum']
    """
    labelled = _labelled(functions)
    if baseline is not None and baseline not in labelled:
        raise UsageError(f"baseline={baseline!r} isn't one of the functions", f"one of: {', '.join(labelled)}")
    first = next(iter(labelled)) if baseline is None else baseline
    ordered = {first: labelled[first]} | labelled
    options = resolve({"timeout_s": timeout_s, "memory_limit_bytes": memory_limit_bytes, "seed": seed})
    cases = {
        label: make_case(fn, args, kwargs, name=name or name_of(ordered[first]), static=static, donate=donate, jit=jit)
        for label, fn in ordered.items()
    }
    effort = effort_for(resolution_of(resolution), read_duration("max_time_s", max_time_s))
    with show_progress(progress) as report:
        return side_by_side(cases, options, effort, report)


def side_by_side(cases: Mapping[str, Case], options: Options, effort: Effort, report: Listener) -> Comparisons:
    """Cases that should do the same, by label, the baseline first. All are given the inputs of the baseline.

    A baseline that fails by itself leaves its part to the next one, and the others go on.
    """
    first = next(iter(cases))
    # One function that cannot be sent to another process must not stop all others. At least one remains.
    unsendable = {label: why for label, case in cases.items() if (why := _why_not_sent(label, case)) is not None}
    failures = dict(list(unsendable.items())[: len(cases) - 1])
    while True:
        left = {label: case for label, case in cases.items() if label not in failures}
        labels = list(left)
        text = f"{first} failed, so the baseline is {labels[0]}"
        notes = () if labels[0] == first else (Remark("baseline-failed", "warning", text),)
        sides = tuple(Side(label, case) for label, case in left.items())
        paired_run = PairedRun(cases[first].id, sides, tuple(map(Version, labels)), options, notes, ranks=True)
        # A single remaining version has nothing to be compared with, so it does not run.
        test = SequentialTest(PairedSamples(paired_run), effort)
        if len(labels) > 1:
            (test,) = session.run_tests([paired_run], effort, report)
        failed = test.first.samples.failures
        # Not automatically: a crash without a named side can come from any side, and spoils all comparisons.
        if 0 not in failed or not is_failure_of(failed[0], labels[0]):
            return _make_comparisons(test, failures)
        failures |= {labels[i]: failure for i, failure in failed.items()}


def _why_not_sent(label: str, case: Case) -> Failure | None:
    try:
        pickling.pack_argument(case.fn, label)
    except UsageError as error:
        return diagnose(error, f"start of {label}")
    return None


def _make_comparisons(test: SequentialTest[PairedSamples], failures: Mapping[str, Failure]) -> Comparisons:
    """Adds a comparison for each baseline that failed, and for each other failure."""
    found, samples = test.comparisons(), test.first.samples
    failed = [
        c
        for label, failure in failures.items()
        for c in judge(replace(samples.context(0), candidate=Version(label)), ComparisonEvidence(failure=failure))
    ]
    labels = (*(version.label for version in samples.paired_run.versions), *failures)
    second = test.second.samples if test.second is not None else None
    return Comparisons((*found, *failed), _rank(samples, second, found), labels)


def _labelled(functions: Any) -> dict[str, Callable[..., Any]]:
    expected = "at least two functions: compare({'a': f, 'b': g}, x) or compare([f, g], x)"
    if callable(functions) or not isinstance(functions, Mapping | Sequence) or isinstance(functions, str):
        raise UsageError(f"cannot compare {functions!r}", expected)
    pairs = list(functions.items()) if isinstance(functions, Mapping) else [(name_of(f), f) for f in functions]
    labels = [label for label, _ in pairs]
    if twice := next((label for i, label in enumerate(labels) if label in labels[:i]), None):
        raise UsageError(f"two functions are called {twice!r}", "labels that differ", "compare({'a': f, 'b': g}, x)")
    if len(pairs) < 2:
        raise UsageError(f"there is nothing to compare {', '.join(map(repr, labels)) or 'here'} with", expected)
    for label, fn in pairs:
        if not isinstance(label, str) or not callable(fn):
            raise UsageError(f"cannot compare {label!r}: {fn!r}", "texts as labels, and functions")
    return dict(pairs)


def _rank(samples: PairedSamples, second: PairedSamples | None, found: Sequence[Comparison]) -> tuple[Rank, ...]:
    """Ranks the versions that ran and gave the baseline's result. They share a place if a difference from the baseline
    was not confirmed.

    Args:
        second: the results of the second stage, if there was one.
        found: the comparisons with the baseline.
    """
    if not samples.groups or 0 in samples.failures:
        return ()
    baseline = samples.paired_run.versions[0].label
    runs = {c.candidate.label: c for c in found if c.metric == "run" and not unranked_reason(c)}
    base_s = next((c.baseline_value for c in runs.values()), None)
    if base_s is None:
        return ()

    def between(one: str, other: str) -> Comparison:
        c = samples.between(one, other)
        if baseline not in (one, other):
            # If two versions besides the baseline differ, the difference gets a name only if the second measurement
            # also shows it.
            if second is None or c.verdict not in ("slower", "faster"):
                return c
            return confirm(c, second.between(one, other, CONFIRMING_ALPHA))
        with_baseline = runs[one if other == baseline else other]
        return replace(c, verdict="unclear") if with_baseline.confirmed is False else c

    times = {baseline: base_s} | {label: c.candidate_value or 0.0 for label, c in runs.items()}
    return rank_versions(times, between)


# ---- stored ----------------------------------------------------------------------------------------------------------
#
# Paired runs with a stored baseline: its program runs again, together with the candidate's function or program.
#
# No stored time is compared: two sessions differ by 30 % and more for reasons that are not in the code.


@dataclass(frozen=True)
class StoredVersion:
    """Rows of one version of a suite, and the store of their programs; None: the rows have them with them."""

    label: str
    rows: Mapping[CaseId, Measurement]
    store: DatabaseStore | None = None


Pairing = tuple[list[PairedRun], Comparisons]
"""The paired runs; and all cases without one, in comparisons that say why, or as new and missing cases."""


def pair_with_cases(
    baseline: StoredVersion,
    cases: Iterable[Case],
    here: Environment,
    command_line: Mapping[str, object] | None = None,
) -> Pairing:
    """Pairs stored rows with the current functions.

    Args:
        here: the environment of the candidate.
        command_line: options, as for `api.run`.
    """

    def pair(row: Measurement, case: Case) -> PairedRun | Comparison:
        old, new = _version(row, baseline.label), Version("now", here.commit, here.is_dirty, here.jax)
        content, why = _program(baseline.store, row, here)
        if content is None:
            return Comparison(case.id, "run", old, new, "unclear", why)
        options = resolve(None, case.options, command_line, project=case.folder)
        sides = (Side(old.label, program=content), Side(new.label, case))
        return PairedRun(case.id, sides, (old, new), options, tuple(_remarks(row, here)))

    return _pair_each(baseline.rows, {case.id: case for case in cases}, pair)


def pair_with_rows(baseline: StoredVersion, candidate: StoredVersion, here: Environment, options: Options) -> Pairing:
    """Pairs two stored versions, on random data of their shapes."""

    def pair(old: Measurement, new: Measurement) -> PairedRun | Comparison:
        versions = (_version(old, baseline.label), _version(new, candidate.label))
        programs = [_program(baseline.store, old, here), _program(candidate.store, new, here, candidate.label)]
        if missing := next((why for content, why in programs if content is None), ""):
            return Comparison(new.case, "run", *versions, "unclear", missing)
        sides = tuple(Side(v.label, program=content) for v, (content, _) in zip(versions, programs, strict=True))
        data = Remark("random-data", "info", "both ran on random data of the shapes that they take")
        notes = (data, *_remarks(old, here), *_remarks(new, here, candidate.label))
        return PairedRun(new.case, sides, versions, options, notes)

    return _pair_each(baseline.rows, candidate.rows, pair)


def _pair_each(
    baseline: Mapping[CaseId, Measurement],
    candidate: Mapping[CaseId, Any],
    pair: Callable[[Measurement, Any], PairedRun | Comparison],
) -> Pairing:
    """Pairs the cases that both have. A pair that can't be compared gives the reason."""
    made = [pair(baseline[id], one) for id, one in candidate.items() if id in baseline]
    rest = Comparisons(
        tuple(each for each in made if isinstance(each, Comparison)),
        new=tuple(id for id in candidate if id not in baseline),
        missing=tuple(id for id in baseline if id not in candidate),
    )
    return [each for each in made if isinstance(each, PairedRun)], rest


def _version(row: Measurement, label: str) -> Version:
    env = row.environment
    return Version(label, env.commit, env.is_dirty, None, row.program.sha256 if row.program else None)


def _program(
    store: DatabaseStore | None, row: Measurement, here: Environment, whose: str = "its baseline"
) -> tuple[bytes | None, str]:
    """(content, "") or (None, why there is nothing that could run)."""
    was = row.environment
    if was.backend != here.backend:
        return None, f"{whose} was measured on {was.backend}, and this is {here.backend}"
    content = program(store, row) if store else row.program and row.program.content
    if content is not None:
        return content, ""
    if row.failure is not None:
        return None, f"{whose} ended with {row.failure.kind.replace('_', ' ')} in {row.failure.stage}"
    why = row.why_absent("program") or "it was stored by a benchax that kept none"
    return None, f"{whose} has no program that could run again, because {why}"


def _remarks(row: Measurement, here: Environment, whose: str = "the baseline") -> Iterator[Remark]:
    was = row.environment
    if (was.jax, was.jaxlib) != (here.jax, here.jaxlib):
        text = f"{whose} was made by jax {was.jax}, and both ran under jax {here.jax}: neither shows the changes in JAX"
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

    def stored(self, reference: str) -> StoredVersion:
        store = self.opened()
        rows = by_case(rows_of(store, reference))
        chosen = {id: row for id, row in rows.items() if matches(id, self.selection.pattern)}
        return StoredVersion(reference, chosen, store)

    def pair_with_now(self, baseline: StoredVersion) -> Pairing:
        """The baseline's programs with the functions of now."""
        chosen = self.selection
        cases, broken = collect(chosen.what, chosen.pattern, chosen.params)
        for each in broken:
            self.tell(f"error: {each.message}\n{each.traceback}", is_lasting=True)
        paired_runs, rest = pair_with_cases(baseline, cases, self.environment(), chosen.options)
        return paired_runs, replace(rest, broken=tuple(broken))

    def environment(self) -> Environment:
        """The environment. The store is usually in the repository, and does not count as a change of the tree."""
        is_elsewhere = self.store == OFF or "://" in self.store
        return capture(Path.cwd(), besides=None if is_elsewhere else Path(self.store))

    def run(self, pairing: Pairing, effort: Effort) -> Comparisons:
        paired_runs, rest = pairing
        found = session.compare_runs(paired_runs, effort, self.report)
        return replace(rest, comparisons=(*(c for each in found for c in each), *rest.comparisons))

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
        raise UsageError(f"invalid benchmarks={benchmarks!r}", one_of(("now", "ref"), benchmarks))
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
        pairing = suite.pair_with_now(StoredVersion(label, other.rows))
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
        labels = [f"jax {v}{' again' * (v in listed[:i])}" for i, v in enumerate(listed)]
        first, *others = [launch_jax(each, label, suite.tell) for each, label in zip(listed, labels, strict=True)]
        found = [
            c for other in others for c in compare_launches((first, other), suite.selection, limit_s, suite.report)
        ]
        return suite.keep(Comparisons(tuple(found)))


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
        old = suite.stored(baseline)
        if candidate is None:
            return suite.keep(suite.run(suite.pair_with_now(old), effort))
        # A stored candidate consists of stored rows only: no file is read, and no value can be set.
        chosen = suite.selection
        for name, value, default in (("paths", chosen.what, (".",)), ("params", chosen.params, ())):
            if value != default:
                problem = f"{name}={list(value)!r} is given with the stored candidate {candidate!r}"
                raise UsageError(problem, "one of them", "choose among stored cases with --filter, or filter=")
        options = resolve(command_line=chosen.options)
        pairing = pair_with_rows(old, suite.stored(candidate), suite.environment(), options)
        return suite.keep(suite.run(pairing, effort))


def _make_effort(resolution: float | str, max_time_s: float | str | None, metrics: Sequence[str]) -> Effort:
    wanted = {metrics} if isinstance(metrics, str) else set(metrics)
    if unknown := sorted(wanted - TIMES):
        counted = "bytes and operations are counted, which needs no option"
        raise UsageError(f"invalid metrics={unknown}", "run, compile, or both", counted)
    limit_s = read_duration("max_time_s", max_time_s)
    return effort_for(resolution_of(resolution), limit_s, TIMES if "compile" in wanted else RUN)
