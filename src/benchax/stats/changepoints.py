"""Finds where a series of numbers changes its level, and whether its last number is unusual.

`change_points` looks back over a whole series: E-divisive means (Matteson & James 2014, A Nonparametric Approach for
Multiple Change Point Analysis of Multivariate Data, JASA 109, arXiv 1306.4933). As in Hunter, it is deterministic
and fit for long series (Fleming et al., ICPE 2023, arXiv 2301.03034; Apache Otava is its code). It uses Student's t
test instead of permutations, and windows that overlap by half. It first finds weak points, and a stricter test then
keeps the good ones.

Four details differ from Otava 0.8. The t test of the first pass takes the values up to the greatest divergence. It does
not take all later values, since these can be at a third level. In series with four steps of 10 % it finds all steps,
not 90 %. A point has at least two values on either side. Variances divide by n - 1. When a point is left out, both its
neighbors are tested again. (Without these the points were the same in 60 simulated series.)

`jump` only checks whether the newest value is far above the values before it. It needs no later values.

Both expect values with similar noise, such as logarithms of ratios taken in pairs. On raw times of
different sessions they find the machine's drift.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median
from typing import TYPE_CHECKING

from benchax.stats.intervals import normal_deviation

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray

WINDOW = 50
P = 0.001
WEAK = 10
"""Points of the first pass may have a p this many times as great."""
LEAST = 2
"""Values on either side of a point: one value is not a level. With one value, as in Otava, more than twice as many
newest values with heavy tails are called changes. For Student's t with 3 degrees of freedom it is 1.4 %, not 0.5 %."""

FALSE_ALARMS = (0.001, 0.007)
"""The share of new points per value if nothing has changed, when the test runs again after each value. The first is for
noise of 1.5 %, the second for noise of 3 % with heavy tails. The simulation in tests/stats/test_changepoints.py counted
them, and its tests keep all of them below 1 %."""

JUMP_WINDOW = 30
JUMP_LEAST = 10
"""Fewer values say too little about their own spread."""
JUMP_CHANGE = 0.05
JUMP_SPREADS = 3


@dataclass(frozen=True)
class ChangePoint:
    """The level differs from `index` on."""

    index: int
    """The index of the first value after the change."""
    before: float
    """Mean of the values since the change before it, or the start."""
    after: float
    """Mean of the values up to the next change, or the end."""
    p: float
    """The p of Student's t test on the two, as if the place had been named beforehand. It was looked for, so this is no
    rate of false alarms; those are counted in tests/stats/test_changepoints.py."""

    @property
    def change(self) -> float:
        return self.after - self.before


def change_points(
    values: Sequence[float], *, window: int = WINDOW, p: float = P, least_change: float = 0.0
) -> tuple[ChangePoint, ...]:
    """Finds the places where the mean of `values` changes, in their order. The same values always give the same points.

    Args:
        values: finite, in the order of time.
        window: at least 2; a result depends on at most this many values at a time.
        p: the greatest p that a point can have.
        least_change: points whose means differ by no more are left out.
    """
    return _merge(values, _weak_points(values, window, WEAK * p), p, least_change)


def jump(values: Sequence[float], least_change: float = JUMP_CHANGE) -> float | None:
    """How far the last value is above the median of the up to 30 before it; None if that is nothing unusual.

    Unusual is more than `least_change` and more than 3 standard deviations, estimated as 1.4826 MAD. None as well with
    fewer than 10 values before it.
    """
    *before, last = values[-JUMP_WINDOW - 1 :] if values else [0.0]
    if len(before) < JUMP_LEAST:
        return None
    centre = median(before)
    is_unusual = last - centre > max(least_change, JUMP_SPREADS * normal_deviation(before))
    return last - centre if is_unusual else None


def _weak_points(values: Sequence[float], window: int, p: float) -> list[int]:
    """Candidates: the first pass of Hunter. A window begins at the last point found, or half a window
    on, so that no change is seen only at the edge of one."""
    found, start = set[int](), 0
    while start < len(values):
        inside = [start + i for i in _divide(values[start : start + window], p)]
        found.update(inside)
        start = max([start + window // 2, *inside])
    return sorted(found)


def _divide(values: Sequence[float], p: float) -> list[int]:
    """Splits where the divergence is greatest, then the parts, for as long as the t test says that a split is one."""
    if len(values) < 2 * LEAST:
        return []
    at, end = _best_split(values)
    if _test_split(values, 0, at, end).p > p:
        return []
    return [*_divide(values[:at], p), at, *(at + i for i in _divide(values[at:], p))]


def _best_split(values: Sequence[float]) -> tuple[int, int]:
    """Returns (place, end) with the greatest Q. Q compares the values before `place` with the values from there to
    `end`. Values after `end` can be at a third level. There must be 2 `LEAST` values.

    Q = mn / (m + n) E (Matteson & James 2014, with alpha = 1). E is twice the mean distance between the n values before
    and the m values after, less the mean distances within each. All of them come from one table of sums over rectangles
    of the matrix of distances.
    """
    # Imported here, like SciPy below, because they take 0.1 s to import and few commands use histories.
    import numpy as np  # noqa: PLC0415

    series = np.asarray(values, dtype=float)
    size = len(series)
    # Prefix sums of all distances: each of the 1,275 pairs of place and end in a window of 50 is then a few
    # differences.
    sums = np.zeros((size + 1, size + 1))
    sums[1:, 1:] = np.abs(series[:, None] - series[None, :]).cumsum(axis=0).cumsum(axis=1)
    split, end = _list_splits(size)
    n, m = split, end - split
    first = sums[split, split]
    between = sums[split, end] - first
    within_second = (sums[end, end] - first) / 2 - between
    inner = m / (n - 1) * (first / 2) + n / (m - 1) * within_second
    best = int((2 / (n + m) * (between - inner)).argmax())
    return int(split[best]), int(end[best])


@cache  # windows have few lengths
def _list_splits(size: int) -> tuple[NDArray[int64], NDArray[int64]]:
    """Returns all (place, end) that leave `LEAST` values on both sides."""
    import numpy as np  # noqa: PLC0415

    split, end = np.triu_indices(size + 1, k=1)
    inside = (split >= LEAST) & (end - split >= LEAST)
    return split[inside], end[inside]


def _merge(values: Sequence[float], indices: list[int], p: float, least_change: float) -> tuple[ChangePoint, ...]:
    """Leaves out the weakest point, first by p, then by size. Then looks again, since its neighbors now have more
    values on one side (the second pass of Hunter)."""

    # Only the two neighbors change. Testing all again took nine tenths of the time for a history of 1,000 values.
    @cache
    def test(start: int, at: int, end: int) -> ChangePoint:
        return _test_split(values, start, at, end)

    while True:
        ends = [0, *indices, len(values)]
        points = [test(a, at, b) for a, at, b in zip(ends, ends[1:], ends[2:], strict=False)]
        if not points:
            return ()
        weakest = max(points, key=lambda point: point.p)
        if weakest.p < p:
            weakest = min(points, key=lambda point: abs(point.change))
            if abs(weakest.change) > least_change:
                return tuple(points)
        indices = [i for i in indices if i != weakest.index]


def _test_split(values: Sequence[float], start: int, at: int, end: int) -> ChangePoint:
    before, after = values[start:at], values[at:end]
    means = fmean(before), fmean(after)
    return ChangePoint(at, *means, p=_student(before, after, *means))


def _student(one: Sequence[float], other: Sequence[float], mean_one: float, mean_other: float) -> float:
    """Two-sided p of Student's t test with a pooled variance; 1 where a side has too few values."""
    from scipy.special import stdtr  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]

    if min(len(one), len(other)) < LEAST or mean_one == mean_other:
        return 1.0
    squares = sum([(v - mean_one) ** 2 for v in one]) + sum([(v - mean_other) ** 2 for v in other])
    if squares == 0:
        return 0.0
    degrees = len(one) + len(other) - 2
    error = math.sqrt(squares / degrees * (1 / len(one) + 1 / len(other)))
    return float(2 * stdtr(degrees, -abs(mean_one - mean_other) / error))
