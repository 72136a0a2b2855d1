"""What readings say, of one process or of several: median, interval, quartiles, extremes, outliers."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import fmean

from benchax.renderers import SelfRendering
from benchax.stats.intervals import between_interval, interval_among

LEVEL = 0.95
AGREEMENT = 1.1
"""Two processes agree when their medians differ by less than this factor."""


@dataclass(frozen=True)
class Summary(SelfRendering):
    """Seconds per call.

    Of one process, `low_s` and `high_s` bound the median that this process has, at 95 %; None below 6 readings. Of
    several, `median_s` is the median of the processes' medians, and the interval is between processes: it is to hold
    what a repetition with as many of them will say. None below 3 processes.

    In tables it is 58.1 µs ± 1.2 %; where "±" would mislead (beyond 50 %, or far to one side) low – high; "unstable",
    with the reason, where high is more than three times low.

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
    """None where the least reading is not above 0: a difference that noise has eaten, and no time."""
    max_s: float
    outliers: int
    """Readings outside Tukey's fences (1.5 interquartile ranges beyond the quartiles). Counted, never removed."""
    process_medians_s: tuple[float, ...] = ()
    """The median of each process, ascending."""
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
    def outlying_s(self) -> tuple[float, ...]:
        """The medians of processes that disagree with `median_s`, ascending."""
        low, high = self.median_s / AGREEMENT, self.median_s * AGREEMENT
        return tuple(m for m in self.process_medians_s if not low <= m <= high)

    @property
    def relative_width(self) -> float | None:
        """Half the width of the interval over the median; None where either does not exist."""
        if self.low_s is None or self.high_s is None or self.median_s <= 0:
            return None
        return (self.high_s - self.low_s) / 2 / self.median_s


def summarize_processes(groups: Sequence[Sequence[float]], moments: float = 0.0) -> Summary:
    """Summary of the readings of several processes (each at least one), in the order taken.

    Args:
        moments: as of `between_interval`.
    """
    if len(groups) == 1:
        return summarize(groups[0])
    interval = between_interval(groups, LEVEL, moments)
    medians = sorted(quantile(sorted(group), 0.5) for group in groups)
    return replace(
        _describe(sorted(chain.from_iterable(groups)), interval),
        median_s=quantile(medians, 0.5),
        process_medians_s=tuple(medians),
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


def quantile(ordered: Sequence[float], q: float) -> float:
    """Linear interpolation between order statistics (Hyndman & Fan 1996, type 7, NumPy's default)."""
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])
