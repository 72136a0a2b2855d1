"""Comparisons as one result: verdicts, and which version is fastest, with ties if versions cannot be distinguished."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cmp_to_key
from typing import Any, TypeVar, overload

from benchax.codec import to_document
from benchax.model import CaseId, Comparison, Estimate, Failure, Metric
from benchax.renderers import SelfRendering, load_display
from benchax.stats.verdicts import Verdict

T = TypeVar("T")

STOPPED = "not measured, because a failure stopped all, and any of them can be its cause"


@dataclass(frozen=True)
class Rank:
    """The place of one version or function; 1 is the fastest. Those without a clear difference share a place."""

    place: int
    label: str
    time_s: float | None
    """The baseline's median, times the ratio to it: no second median that could say otherwise. In a grid it is the
    function's own median, and None over all data points."""
    ratio: float | None
    """Its time over that of the fastest, of the pairs of these two; None if they were not compared. In a grid it is the
    ratio of the medians, and over all data points the geometric mean of these."""
    low: float | None
    high: float | None
    """The ends of the ratio's interval; None of the fastest version itself, or if a cell had too few readings."""

    @property
    def estimate(self) -> Estimate | None:
        """The ratio with its interval."""
        return None if self.ratio is None else Estimate(self.ratio, self.low, self.high)


def share_places(order: Sequence[T], is_apart: Callable[[T, T], bool]) -> list[int]:
    """The place of each, the fastest first. Who is not told apart from the first of the place before shares that place.

    Args:
        is_apart: asked only of the first of a place and the next one.
    """
    places: list[int] = []
    for i, one in enumerate(order):
        places.append(i + 1 if not places or is_apart(order[places[-1] - 1], one) else places[-1])
    return places


@dataclass(frozen=True)
class Comparisons(SelfRendering, Sequence[Comparison]):
    """Comparisons of one or several cases, as `compare` gives them.

    Example:
        >>> from benchax.model import CaseId, Version
        >>> c = benchax.Comparison(CaseId("fft"), "run", Version("v1"), Version("now"), "slower", ratio=1.25)
        >>> r = benchax.Comparisons((c,))  # as `compare` returns it
        >>> len(r), r.verdicts
        (1, {'now': 'slower'})
    """

    comparisons: tuple[Comparison, ...] = ()
    ranking: tuple[Rank, ...] = ()
    """The versions of one case that ran and gave the result of the baseline. Empty if there are several cases."""
    labels: tuple[str, ...] = ()
    """The labels of the functions to rank, the baseline first; empty if there are several cases."""
    new: tuple[CaseId, ...] = ()
    """Cases that only the candidate has."""
    missing: tuple[CaseId, ...] = ()
    """Cases that only the baseline has."""
    broken: tuple[Failure, ...] = ()
    """The failures of benchmark files that cannot be imported now, whose cases are in none of these."""
    notes: tuple[str, ...] = ()
    """Notes about all comparisons: whose benchmark files ran at the other commit."""
    unstored: str = ""
    """Why they are not in the store; empty if they are, or were not to be."""

    def __len__(self) -> int:
        return len(self.comparisons)

    @overload
    def __getitem__(self, index: int) -> Comparison: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Comparison, ...]: ...
    def __getitem__(self, index: int | slice) -> Comparison | tuple[Comparison, ...]:
        return self.comparisons[index]

    def __iter__(self) -> Iterator[Comparison]:
        return iter(self.comparisons)

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdicts on run times. Keys are the labels of the candidates if there is one case, else the names of the
        cases.
        """
        runs = self.of("run")
        is_one_case = len({c.case for c in runs}) == 1
        return {c.candidate.label if is_one_case else c.case.label: c.verdict for c in runs}

    @property
    def unranked(self) -> dict[str, str]:
        """The versions without a place, and why: no time, or another result than the baseline's."""
        runs = self.of("run") if self.labels else ()
        together = {c.candidate.label: f"{STOPPED}: {c.why}" for c in runs if c.failure and not self.is_at_fault(c)}
        return {c.candidate.label: why for c in runs if (why := unranked_reason(c))} | together

    @property
    def unmatched(self) -> list[str]:
        """In words, the cases that one version only has."""
        one_sided = (("new", self.new), ("missing now", self.missing))
        return [f"{what}: {', '.join(id.label for id in ids)}" for what, ids in one_sided if ids]

    @property
    def asides(self) -> list[str]:
        """In sentences, all that is in none of the comparisons."""
        broken = [failure.message for failure in self.broken]
        unstored = [f"the comparisons were not stored: {self.unstored}"] if self.unstored else []
        return [*self.notes, *self.unmatched, *broken, *unstored]

    def is_at_fault(self, comparison: Comparison) -> bool:
        """Did the candidate fail by itself? A crash without a named function leaves no version that ran."""
        if comparison.failure is None:
            return False
        return bool(self.ranking) or is_failure_of(comparison.failure, comparison.candidate.label)

    def asdict(self) -> dict[str, Any]:
        """Plain values, all that JSON knows."""
        found: dict[str, Any] = {
            "labels": list(self.labels),
            "ranking": [asdict(rank) for rank in self.ranking],
            "unranked": self.unranked,
            "comparisons": list(map(to_document, self.comparisons)),
        }
        if self.labels:  # functions are called by one call: none of them is new, or in a file of its own
            return found
        return found | {
            "new": [case.label for case in self.new],
            "missing": [case.label for case in self.missing],
            "broken": [asdict(failure) for failure in self.broken],
            "notes": list(self.notes),
            "unstored": self.unstored,
        }

    def of(self, metric: Metric) -> tuple[Comparison, ...]:
        return tuple(c for c in self.comparisons if c.metric == metric)

    def plot(self) -> Any:
        """A matplotlib figure: the ratio of each run time with its interval.

        Raises:
            UsageError: there is no comparison of run times.
            MissingPackage: matplotlib is not installed.
        """
        return load_display().figure(self)


def is_failure_of(failure: Failure, label: str) -> bool:
    """Is the failure that of this function, by its stage?"""
    return failure.stage == "build" or failure.stage.partition(" of ")[2] == label


def unranked_reason(comparison: Comparison) -> str:
    """Why the candidate has no place among the others; empty if it has one. A fast wrong result wins nothing."""
    if comparison.failure is not None:
        return f"failed: {comparison.why}"
    if comparison.ratio is None:
        return f"not measured, because {comparison.why}"
    if comparison.differs and comparison.numerics:
        return f"its result differs from the result of {comparison.baseline.label}: {comparison.numerics.why}"
    return ""


Between = Callable[[str, str], Comparison | None]
"""The comparison of the second label's run time with the first one's; None if they were not compared."""


def rank_versions(times: dict[str, float], between: Between) -> tuple[Rank, ...]:
    """Places by time.

    Args:
        times: of each version, in seconds or as shares of one of them, in one session.
    """
    between = cache(between)
    order = in_order(times, between)
    places = share_places(order, lambda one, other: is_slower(between(one, other)))
    ranks: list[Rank] = []
    for place, label in zip(places, order, strict=True):
        c = None if label == order[0] else between(order[0], label)
        ratio = (c.ratio, c.low, c.high) if c else (None if ranks else 1.0, None, None)
        ranks.append(Rank(place, label, times[label], *ratio))
    return tuple(ranks)


def is_slower(comparison: Comparison | None) -> bool:
    """Is the candidate told apart from the baseline?"""
    return comparison is not None and comparison.verdict == "slower"


def in_order(times: dict[str, float], between: Between) -> list[str]:
    """The labels, the fastest first, by the pairs of each two; where they were not compared, by `times`."""

    def which_is_slower(one: str, other: str) -> int:
        c = between(one, other)
        excess = 1 / c.ratio - 1 if c is not None and c.ratio else times[one] - times[other]
        return (excess > 0) - (excess < 0)

    # Pairs may be inconsistent (a before b, b before c, c before a). A fixed initial order makes the places
    # reproducible.
    return sorted(sorted(times, key=lambda label: times[label]), key=cmp_to_key(which_is_slower))
