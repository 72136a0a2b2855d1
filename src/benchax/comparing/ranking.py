"""Comparisons as one result: verdicts, and who is fastest, with ties where nothing tells versions apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from benchax.model import RENDERERS, Comparison, Metric
from benchax.stats.verdicts import Verdict


@dataclass(frozen=True)
class Rank:
    """The place of one version; 1 is the fastest. Versions that cannot be told apart share a place."""

    place: int
    label: str
    median_s: float
    ratio: float
    """Its time over that of the fastest."""
    low: float | None
    high: float | None
    """The ends of the ratio's interval; None of the fastest itself."""


@dataclass(frozen=True)
class Comparisons(Sequence[Comparison]):
    """Comparisons of one or several cases, as `compare` gives them."""

    comparisons: tuple[Comparison, ...] = ()
    ranking: tuple[Rank, ...] = ()
    """Of the versions of one case; empty where there are several cases."""

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
        """Of the run times, by the label of the candidate where there is one case, else of the case."""
        runs = self.of("run")
        is_one_case = len({c.case for c in runs}) == 1
        return {c.candidate.label if is_one_case else c.case.label: c.verdict for c in runs}

    def of(self, metric: Metric) -> tuple[Comparison, ...]:
        return tuple(c for c in self.comparisons if c.metric == metric)

    def plot(self) -> Any:
        """A matplotlib figure: the ratio of each run time with its interval.

        Raises:
            UsageError: there is no comparison of run times.
            MissingPackage: matplotlib is not installed.
        """
        return RENDERERS["comparisons_figure"](self)

    def __str__(self) -> str:
        return RENDERERS["comparisons"](self) if "comparisons" in RENDERERS else repr(self)

    def _repr_html_(self) -> str:
        return RENDERERS["comparisons_html"](self)


def ranked(times: dict[str, float], against: dict[tuple[str, str], Comparison]) -> tuple[Rank, ...]:
    """Places by median time.

    Args:
        times: median seconds of each version, in one session.
        against: comparisons of run times, by (faster, slower) for every two versions.
    """
    order = sorted(times, key=lambda label: times[label])
    ranks: list[Rank] = []
    leader = order[0] if order else ""
    for i, label in enumerate(order):
        versus_best = against.get((order[0], label))
        # Told apart from the first of the place before: else it shares the place.
        versus_leader = against.get((leader, label))
        is_new = bool(versus_leader and versus_leader.verdict == "slower")
        leader = label if is_new else leader
        place = i + 1 if is_new else (ranks[-1].place if ranks else 1)
        ratio = versus_best.ratio if versus_best and versus_best.ratio else 1.0
        low, high = (versus_best.low, versus_best.high) if versus_best else (None, None)
        ranks.append(Rank(place, label, times[label], ratio, low, high))
    return tuple(ranks)
