"""`benchax.compare`: functions that should do the same, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from benchax.case import make_case, name_of
from benchax.comparing.judging import timed
from benchax.comparing.ranking import Comparisons, Rank, ranked
from benchax.errors import UsageError
from benchax.measuring.paired import Side
from benchax.model import Comparison, Version
from benchax.options import resolve
from benchax.pairing import session
from benchax.pairing.contest import Contest, Taken
from benchax.pairing.session import Effort, Progress

Functions = Mapping[str, Callable[..., Any]] | Sequence[Callable[..., Any]]


def compare(
    functions: Functions,
    /,
    *args: Any,
    baseline: str | None = None,
    name: str | None = None,
    static: Sequence[int | str] = (),
    donate: Sequence[int | str] = (),
    jit: bool = True,
    max_time_s: float | None = None,
    timeout_s: float | str | None = None,
    memory_limit_bytes: int | str | None = None,
    seed: int | None = None,
    progress: Progress | None = None,
    **kwargs: Any,
) -> Comparisons:
    """Runs all functions side by side, on the same inputs, and says which are faster, and how sure that is.

    Samples of all functions alternate in random order, in fresh processes one after the other (2 to 8), until every
    verdict is clear; a change is called one only if a second measurement, in processes of its own, confirms it. An
    unchanged function is called slower in less than 1 % of comparisons (docs/trust.md).

    Args:
        functions: by label, or in a list (labels are their names). At least two, called with the same arguments.
        args, kwargs: arrays, pytrees, specs such as "f32[1024,1024]".
        baseline: the label that the others are compared with; default: the first.
        name: of the case; default: of the baseline's function.
        static, donate, jit: as for `bench`, for all functions.
        max_time_s: begin no further process after this long, but for confirming a change.
        timeout_s, memory_limit_bytes: limits of each stage in the worker processes.
        seed: of the data made from specs.
        progress: told how far it is.

    Raises:
        UsageError: fewer than two functions, two of one label, a baseline that is none of them.
    """
    labelled = _labelled(functions)
    first = _baseline(labelled, baseline)
    ordered = {first: labelled[first]} | labelled
    options = resolve({"timeout_s": timeout_s, "memory_limit_bytes": memory_limit_bytes, "seed": seed})
    cases = {
        label: make_case(fn, args, kwargs, name=name or name_of(ordered[first]), static=static, donate=donate, jit=jit)
        for label, fn in ordered.items()
    }
    contest = Contest(
        cases[first].id,
        tuple(Side(label, case) for label, case in cases.items()),
        tuple(Version(label) for label in cases),
        options,
    )
    ((taken, found),) = session.settled([contest], Effort(max_time_s=max_time_s), progress or session.quiet)
    return Comparisons(tuple(found), _ranking(taken, found))


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


def _baseline(labelled: Mapping[str, Any], baseline: str | None) -> str:
    if baseline is None:
        return next(iter(labelled))
    if baseline not in labelled:
        raise UsageError(f"baseline={baseline!r} is none of the functions", f"one of: {', '.join(labelled)}")
    return baseline


def _ranking(taken: Taken, found: Sequence[Comparison]) -> tuple[Rank, ...]:
    """Of the versions that ran. Where a difference from the baseline was not confirmed, they share a place."""
    if not taken.answers or 0 in taken.failures:
        return ()
    labels = [version.label for i, version in enumerate(taken.contest.versions) if i not in taken.failures]
    where = {version.label: i for i, version in enumerate(taken.contest.versions)}
    against = {(a, b): _pair(taken, where[a], where[b]) for a in labels for b in labels if a != b}
    for c in found:
        if c.metric == "run" and c.confirmed is False:
            for pair in ((c.baseline.label, c.candidate.label), (c.candidate.label, c.baseline.label)):
                against[pair] = replace(against[pair], verdict="unclear")
    first = labels[0]
    times = {label: 1.0 if label == first else against[first, label].ratio or 1.0 for label in labels}
    seconds = median([s for block in taken.blocks(0, 0) for s in block.baseline_s])
    return ranked({label: seconds * ratio for label, ratio in times.items()}, against)


def _pair(taken: Taken, one: int, other: int) -> Comparison:
    return timed(taken.matter(other, one), "run", taken.blocks(one, other))
