"""Summarizes readings of one process or of several: median, interval, quartiles, extremes, outliers."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean
from typing import Literal

from benchax.renderers import SelfRendering
from benchax.stats.intervals import (
    AGREEMENT,
    interval_among,
    middle_of_agreeing,
    predict_interval,
    quantile,
    range_of_runs,
)

LEVEL = 0.95


@dataclass(frozen=True)
class Summary(SelfRendering):
    """Seconds per call.

    `median_s` is the median of one process; of several, the middle of the processes that agree. `low_s` and `high_s`
    are the ends of its 95 % interval. `scope` says what the interval is valid for: "run" for the reading of a later
    run, "process" for the median of this process only. A single process with fewer than 6 readings has no interval.

    Example:
        >>> s = benchax.bench(abs, "f32[8]", timer="wall", max_time_s=0.3, store="off").summary("wall")
        >>> s.low_s <= s.median_s <= s.high_s
        True
    """

    n: int
    median_s: float
    low_s: float | None
    high_s: float | None
    q25_s: float
    q75_s: float
    min_s: float | None
    """None if the least reading is not above 0: a difference that noise has eaten, and no time."""
    max_s: float
    outliers: int
    """Readings outside Tukey's fences (1.5 interquartile ranges beyond the quartiles). Counted, never removed."""
    process_medians_s: tuple[float, ...] = ()
    """The median of each process, ascending."""
    earlier_s: tuple[float, ...] = ()
    """The readings of earlier runs of the same program, oldest first."""
    scope: Literal["process", "run"] = "process"
    """What the interval speaks for: this process, or a later run of the same program."""
    mean_s: float | None = None
    """The mean of all readings, preempted ones included."""
    std_s: float | None = None
    """Standard deviation of the readings (n - 1); None of a single one. It is no uncertainty of the mean: readings in a
    row are not independent."""

    @property
    def processes(self) -> int:
        """How many processes the readings come from."""
        return max(1, len(self.process_medians_s))

    @property
    def is_as_before(self) -> bool:
        """Whether `median_s` is in `range_of_runs` of the earlier runs, so that no other process has to confirm it."""
        if not self.earlier_s:
            return False
        low, high = range_of_runs(self.earlier_s)
        return low <= self.median_s <= high

    @property
    def outlying_s(self) -> tuple[float, ...]:
        """The medians of processes that disagree with `median_s`, ascending."""
        low, high = self.median_s / AGREEMENT, self.median_s * AGREEMENT
        return tuple(m for m in self.process_medians_s if not low <= m <= high)

    @property
    def relative_width(self) -> float | None:
        """Half the width of the interval over the median; None if either does not exist."""
        if self.low_s is None or self.high_s is None or self.median_s <= 0:
            return None
        return (self.high_s - self.low_s) / 2 / self.median_s


def summarize_run(
    groups: Sequence[Sequence[float]], earlier: Sequence[float] = (), margin: float = 0.05, pace_scatter: float = 0.0
) -> Summary:
    """Summary of the readings of each process of a run (each at least one), in the order taken.

    Args:
        earlier, margin, pace_scatter: see `predict_interval`.
    """
    if len(groups) == 1 and not earlier:
        return summarize(groups[0])
    medians = sorted(quantile(sorted(group), 0.5) for group in groups)
    readings = sorted(chain.from_iterable(groups))
    if min([*medians, *earlier]) <= 0:  # noise is greater than a difference of two readings, here or in an earlier run
        return replace(_describe(readings, None), median_s=quantile(medians, 0.5), process_medians_s=tuple(medians))
    return replace(
        _describe(readings, predict_interval(medians, earlier, margin, pace_scatter)),
        median_s=middle_of_agreeing(medians),
        process_medians_s=tuple(medians),
        earlier_s=tuple(earlier),
        scope="run",
    )


def summarize(values: Sequence[float]) -> Summary:
    """Summary of `values` (at least one), in their own unit and in the order taken."""
    ordered = sorted(values)
    return _describe(ordered, interval_among(ordered, values, LEVEL))


def _describe(ordered: Sequence[float], interval: tuple[float, float] | None) -> Summary:
    q25, q75 = quantile(ordered, 0.25), quantile(ordered, 0.75)
    fence = 1.5 * (q75 - q25)
    return Summary(
        n=len(ordered),
        median_s=quantile(ordered, 0.5),
        low_s=interval[0] if interval else None,
        high_s=interval[1] if interval else None,
        q25_s=q25,
        q75_s=q75,
        min_s=ordered[0] if ordered[0] > 0 else None,
        max_s=ordered[-1],
        outliers=bisect_left(ordered, q25 - fence) + len(ordered) - bisect_right(ordered, q75 + fence),
        mean_s=(mean := fmean(ordered)),
        # Not `statistics.stdev`, which computes in fractions: 10 ms for 10,000 readings.
        std_s=math.sqrt(math.fsum((v - mean) ** 2 for v in ordered) / (len(ordered) - 1)) if len(ordered) > 1 else None,
    )
