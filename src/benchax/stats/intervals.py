"""Intervals: for the median inside one process, for what a later run reads, and for shares.

Inside a process they are distribution-free: times are skewed and have several modes, so no shape is assumed. Samples
aren't independent either: neighboring ones share the state of the machine (on a busy one, rank autocorrelation is 0.3
to 0.4 at lag 1). So the number of samples is deflated to an effective one first.

For a later run the data are the medians of processes and of earlier runs. Two processes differ by layout, placement,
and the moment, by far more than the samples inside either of them show.

Intervals for shares (how often something happens) are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, median

AGREEMENT = 1.1
"""Two processes agree when their medians differ by at most this factor."""
ENOUGH_RUNS = 8
"""From this many earlier runs on, their range alone says what a later run will read."""
LEAST_MARGIN = 0.015
"""Every prediction has at least this margin on each side, since the clock rate of a core changes in such steps."""

MOST_GAP = 1.25
"""Values that differ by more come from two states of the machine, and say nothing about a third one."""


def median_interval(values: Sequence[float], level: float = 0.95) -> tuple[float, float] | None:
    """Confidence interval for the median of the stationary process that `values` were drawn from.

    Order statistics with binomial ranks (Conover, Practical Nonparametric Statistics, 3rd ed., 3.2). The ranks are
    those for `effective_size(values)` draws, at their expected place among all values: rank r of m at the quantile
    (r + 1) / (m + 1). For independent values the true coverage is at least `level`. It says nothing about drifts
    longer than the sampling itself.

    Args:
        values: in the order taken.
        level: in (0, 1).

    Returns:
        (low, high), both of them members of `values`; None with too few effective values (6 for level 0.95).
    """
    return interval_among(sorted(values), values, level)


def interval_among(ordered: Sequence[float], values: Sequence[float], level: float) -> tuple[float, float] | None:
    """`median_interval` of `values`, which are `ordered` already."""
    size = int(effective_size(values, median(ordered)))
    rank = interval_rank(size, level)
    if rank is None:
        return None
    place = (rank + 1) * (len(ordered) + 1) // (size + 1) - 1
    return ordered[place], ordered[-1 - place]


def middle_of_agreeing(medians: Sequence[float]) -> float:
    """Returns the median of the half of `medians` whose values are closest together.

    The location of the shorth (Andrews et al., Robust Estimates of Location, 1972), by ratios instead of differences:
    one slow process out of five doesn't move it. For two values it is the mean.

    Args:
        medians: the median of each process, all above 0, in any order.
    """
    ordered = sorted(medians)
    size = len(ordered) // 2 + 1
    first = min(range(len(ordered) - size + 1), key=lambda i: ordered[i + size - 1] / ordered[i])
    return median(ordered[first : first + size])


def agreeing(medians: Sequence[float]) -> list[float]:
    """`medians` in ascending order, without the slowest if it is the only one of four or more that disagrees.

    Something slowed that process down, and the others show that a repetition won't repeat it.
    """
    ordered = sorted(medians)
    middle = middle_of_agreeing(ordered)
    is_lone = len(ordered) >= 4 and ordered[-1] > AGREEMENT * middle
    return ordered[:-1] if is_lone and ordered[-2] <= AGREEMENT * middle <= AGREEMENT**2 * ordered[0] else ordered


def predict_interval(
    medians: Sequence[float], earlier: Sequence[float] = (), margin: float = 0.05, pace_scatter: float = 0.0
) -> tuple[float, float] | None:
    """Returns the interval that should contain the reading of a later run of the same program in 95 % of cases.

    With `ENOUGH_RUNS` earlier runs: the 10 to 90 % range of their times, extended to this run's own value, with
    `LEAST_MARGIN` on each side. A run that reads a value outside that range starts further processes, so the range can
    leave out the ends. With fewer earlier runs, it is the range of the agreeing processes and of the earlier runs. Each
    side is extended by the mean distance between two neighbors among these, up to `MOST_GAP`. A margin is added, which
    shrinks with the root of their number. It is never below the scatter of the machine's pace. Recorded runs decided
    the rule and the margins (docs/about/decisions.md).

    Args:
        medians: the median of each process of this run, all above 0, in any order.
        earlier: the readings of earlier runs.
        margin: the distance of a later run from two values that agree, as a share; depends on the timer.
        pace_scatter: standard deviation of the machine's pace from moment to moment, as a share.

    Returns:
        (low, high), which holds `middle_of_agreeing(medians)`; None if there is only one value.
    """
    middle = middle_of_agreeing(medians)
    if len(earlier) >= ENOUGH_RUNS:
        low, high = range_of_runs(earlier)
        return min(low, middle / (1 + LEAST_MARGIN)), max(high, middle * (1 + LEAST_MARGIN))
    values = [*agreeing(medians), *earlier]
    if len(values) < 2:
        return None
    # Both runs have their own moment, hence the factor of √2.
    moments = NormalDist().inv_cdf(0.975) * math.sqrt(2) * pace_scatter
    share = math.hypot(max(LEAST_MARGIN, margin * math.sqrt(2 / len(values))), moments)
    # The extremes of a few values are not those of their distribution, which on average are one gap further out.
    gap = (max(values) / min(values)) ** (1 / (len(values) - 1))
    beyond = (1 + share) * min(gap, MOST_GAP)
    return min(values) / beyond, max(values) * beyond


def range_of_runs(earlier: Sequence[float]) -> tuple[float, float]:
    """The 10 to 90 % range of the times of earlier runs, with `LEAST_MARGIN` on each side."""
    ordered = sorted(earlier)
    return quantile(ordered, 0.1) / (1 + LEAST_MARGIN), quantile(ordered, 0.9) * (1 + LEAST_MARGIN)


def quantile(ordered: Sequence[float], q: float) -> float:
    """Linear interpolation between order statistics (Hyndman & Fan 1996, type 7, NumPy's default)."""
    position = q * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def normal_deviation(values: Sequence[float]) -> float:
    """The standard deviation of normal data with the median absolute deviation of `values`."""
    centre = median(values)
    return 1.4826 * median([abs(v - centre) for v in values])


def effective_size(values: Sequence[float], centre: float | None = None) -> float:
    """Returns the number of independent draws that would determine the median as well as `values`, in the order taken.

    It is n / tau. tau is the autocorrelation time of "above the median" (the median's interval depends only on this).
    tau is summed by the initial positive sequence (Geyer 1992, Practical Markov Chain Monte Carlo, 3.3). The result is
    never more than n. Below 20 values, their autocorrelation is not known, and they count in full.

    Args:
        centre: their median, if it is known.
    """
    n, centre = len(values), median(values) if centre is None else centre
    # One bit per value: a lag is then one shift and one count of bits, whatever n is.
    above = int("".join("1" if v > centre else "0" for v in values), 2)
    mean = above.bit_count() / n
    variance = mean * (1 - mean)
    if n < 20 or not variance:
        return n
    tau, lag = -1.0, 0
    # At larger lags few pairs of values are left, and their sum is noise.
    while lag + 1 < n // 2:
        pair = sum(_autocovariance(above, n, mean, k) for k in (lag, lag + 1)) / variance
        if pair <= 0:
            break
        tau += 2 * pair
        lag += 2
    return n / max(1.0, tau)


def _autocovariance(above: int, n: int, mean: float, lag: int) -> float:
    both = (above & (above >> lag)).bit_count()
    # sum((a - m)(b - m)) written out, so that only bits are counted.
    ends = (above >> lag).bit_count() + (above & ((1 << (n - lag)) - 1)).bit_count()
    return (both - mean * ends + (n - lag) * mean * mean) / n


@lru_cache(maxsize=4096)
def interval_rank(n: int, level: float) -> int | None:
    """Largest r with P(r < B < n - r) >= level, B ~ Binomial(n, 1/2): the r-th smallest and greatest bound the median.

    Counted from 0. None if not even the extremes reach `level`.
    """
    tail = (1 - level) / 2
    # Use logarithms: from n = 1024 on, 2**n exceeds a float.
    log_total = n * math.log(2)
    below, rank = 0.0, None
    for k in range((n + 1) // 2):
        below += math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - log_total)
        if below > tail:
            break
        rank = k
    return rank


@lru_cache(maxsize=1024)
def student_quantile(level: float, degrees: int) -> float:
    """The value that a share `level` of Student's distribution with `degrees` degrees of freedom lies below."""
    # Imported here, because NumPy and SciPy take 0.25 s to import, and `benchax show` does not need them.
    from scipy.special import stdtrit  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]

    return float(stdtrit(degrees, level))


# ---- shares -----------------------------------------------------------------------------------------------------


def share_interval(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Exact two-sided interval for the probability of an event that happened `hits` times in `n` independent trials.

    Clopper & Pearson, Biometrika 26 (1934); the true coverage is at least `level`. Without trials it is (0, 1).
    """
    tail = (1 - level) / 2
    return _beta(hits, n - hits + 1, tail) if hits else 0.0, upper_limit(hits, n, 1 - tail)


def upper_limit(hits: int, n: int, level: float = 0.95) -> float:
    """The exact one-sided limit: above this probability, at most `hits` hits come in less than 1 - `level` of cases."""
    return _beta(hits + 1, n - hits, level) if hits < n else 1.0


def _beta(a: int, b: int, probability: float) -> float:
    """The quantile of the beta distribution."""
    # Imported here, because SciPy takes 0.1 s to import, and few commands need a share.
    from scipy.special import betaincinv  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]

    return float(betaincinv(a, b, probability))
