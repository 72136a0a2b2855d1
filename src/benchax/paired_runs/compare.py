"""`benchax.compare`: functions that should do the same, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchax.case import Case, make_case, name_of
from benchax.comparing.judging import ComparisonEvidence, confirm, judge, resolution_of
from benchax.comparing.ranking import Comparisons, Rank, names, rank_versions, without_place
from benchax.comparing.sequential import Effort, SequentialTest, effort_for
from benchax.errors import UsageError
from benchax.keywords import guard_keywords
from benchax.measuring.sides import Side
from benchax.model import Comparison, Failure, Options, Remark, Version
from benchax.options import resolve
from benchax.paired_runs import session
from benchax.paired_runs.paired_run import PairedRun, PairedSamples
from benchax.progress import Listener, Progress, show_progress
from benchax.stats.verdicts import CONFIRMING_ALPHA, SAME_WITHIN
from benchax.units import read_duration
from benchax.workers import pickling

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
        raise UsageError(f"baseline={baseline!r} is none of the functions", f"one of: {', '.join(labelled)}")
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
    # One function that cannot travel to another process would keep all others from going; one at least is left over.
    unsendable = [failure for label, case in cases.items() if (failure := _why_not_sent(label, case)) is not None]
    failures = dict(unsendable[: len(cases) - 1])
    while True:
        left = {label: case for label, case in cases.items() if label not in failures}
        labels = list(left)
        text = f"{first} failed, and the baseline is {labels[0]} in its place"
        notes = () if labels[0] == first else (Remark("baseline-failed", "warning", text),)
        sides = tuple(Side(label, case) for label, case in left.items())
        paired_run = PairedRun(cases[first].id, sides, tuple(map(Version, labels)), options, notes, ranks=True)
        # One that is left over has nothing to be compared with, and is not run.
        test = SequentialTest(PairedSamples(paired_run), effort)
        if len(labels) > 1:
            (test,) = session.run_tests([paired_run], effort, report)
        failed = test.first.samples.failures
        # Not by itself: a crash without a named side can come from any side, and spoils all comparisons.
        if 0 not in failed or not names(failed[0], labels[0]):
            return _make_comparisons(test, failures)
        failures |= {labels[i]: failure for i, failure in failed.items()}


def _why_not_sent(label: str, case: Case) -> tuple[str, Failure] | None:
    try:
        pickling.dumps(case.fn, lambda buffer: None)
    except Exception as error:  # pickling raises what it likes, and it is told
        problem = f"{label} cannot be sent to a worker process: {type(error).__name__}: {error}"
        hint = "open files, locks and connections inside the function"
        return label, Failure("error", f"start of {label}", problem, hint)
    return None


def _make_comparisons(test: SequentialTest[PairedSamples], failures: Mapping[str, Failure]) -> Comparisons:
    """Adds a comparison for each baseline that failed, and for each other failure."""
    found, samples = test.comparisons(), test.first.samples
    contexts = {label: replace(samples.context(0), candidate=Version(label)) for label in failures}
    failed = [
        c for label, context in contexts.items() for c in judge(context, ComparisonEvidence(failure=failures[label]))
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
    runs = [c for c in found if c.metric == "run"]
    without = {c.candidate.label for c in runs if without_place(c)}
    labels = [version.label for version in samples.paired_run.versions if version.label not in without]
    against = {(a, b): _between(samples, second, a, b) for a in labels for b in labels if a != b}
    for c in runs:
        if c.confirmed is False and c.candidate.label in labels:
            for pair in ((c.baseline.label, c.candidate.label), (c.candidate.label, c.baseline.label)):
                against[pair] = replace(against[pair], verdict="unclear")
    known = [c for c in runs if c.candidate.label in labels and c.candidate_value is not None]
    base_s = next((c.baseline_value for c in known if c.baseline_value is not None), None)
    if base_s is None:
        return ()
    return rank_versions({labels[0]: base_s} | {c.candidate.label: c.candidate_value or 0.0 for c in known}, against)


def _between(samples: PairedSamples, second: PairedSamples | None, one: str, other: str) -> Comparison:
    """A difference of two that are not the baseline has a name where the second measurement shows it, too."""
    found = samples.between(one, other)
    is_with_baseline = samples.paired_run.versions[0].label in (one, other)
    if is_with_baseline or second is None or found.verdict not in ("slower", "faster"):
        return found
    return confirm(found, second.between(one, other, CONFIRMING_ALPHA))
