"""Confidence intervals: inside one process, and between processes.

Inside a process they are distribution-free: times are skewed and have several modes, and nothing is assumed of their
shape. They are not independent either: neighbouring samples share the state of the machine (on a busy one, rank
autocorrelation 0.3 to 0.4 at lag 1). So the number of samples is deflated to an effective one first.

Between processes the data are the processes' medians, one each, however many samples that process has: two processes
differ by layout, placement and the moment, by far more than the samples of either say.

Of shares (how often something happens, by how often it was seen) they are exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import NormalDist, fmean, median, variance

LEAST_PROCESSES = 3
"""The interval of two would be 9 times as wide as their distance (Student), and say nothing."""
LEAST_SCATTER = 0.015
"""The standard deviation of the medians of processes, as a share, that is assumed where they agree better. Five agree
within 0.2 % now and then, by the moment that they share, or because a program has two paces, some percent apart, and
all drew one of them. Later processes then lie 1 to 3 % off (docs/about/decisions.md)."""


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


def between_interval(
    groups: Sequence[Sequence[float]], level: float = 0.95, moments: float = 0.0
) -> tuple[float, float] | None:
    """Interval for what a repetition will say: the middle of the medians of as many later processes like these.

    Student's prediction interval for the mean of P later logarithms of medians, from P of them (Hahn & Meeker,
    Statistical Intervals, 2nd ed. 2017, section 4.8: t s sqrt(1/P + 1/P), with P - 1 degrees of freedom). The scatter
    of the medians, one datum for each process, holds what each median is itself uncertain by; where by luck they
    scatter less than that, the latter is taken, and at least `LEAST_SCATTER`. All processes share one moment, and the
    repetition has another: where it is known what moments scatter by, twice its variance is added.

    Args:
        groups: the readings of each process, in the order taken.
        level: in (0, 1).
        moments: standard deviation of the machine's pace from moment to moment, as a share; 0 where it is not known.

    Returns:
        (low, high), around the median of the medians; None below `LEAST_PROCESSES`, or where a median is not above 0.
    """
    medians = [median(group) for group in groups]
    if len(medians) < LEAST_PROCESSES or min(medians) <= 0:
        return None
    logs = [math.log(m) for m in medians]
    inside = [v for group in groups if (v := _log_median_variance(group)) is not None]
    spread = max(variance(logs), fmean(inside) if inside else 0.0, LEAST_SCATTER**2)
    # Not the confidence interval of the mean, which is narrower by the root of 2: processes that are measured within
    # seconds share the moment, and two runs on one machine meet two moments (docs/about/decisions.md).
    half = student_quantile((1 + level) / 2, len(logs) - 1) * math.sqrt(2 * spread / len(logs))
    half = math.hypot(half, NormalDist().inv_cdf((1 + level) / 2) * moments * math.sqrt(2))
    # The mean of skewed medians may stand apart from their median, which is what is shown.
    middle, shown = fmean(logs), math.log(median(medians))
    return math.exp(min(middle - half, shown)), math.exp(max(middle + half, shown))


def _log_median_variance(values: Sequence[float]) -> float | None:
    """Variance of the logarithm of the median of one process, by the width of its own interval; None without one."""
    interval = median_interval(values)
    if interval is None or interval[0] <= 0:
        return None
    # As if it were normal: half of a 95 % interval is 1.96 standard errors.
    return (math.log(interval[1] / interval[0]) / 2 / 1.96) ** 2


def effective_size(values: Sequence[float], centre: float | None = None) -> float:
    """How many independent draws would fix the median as well as `values`, in the order taken, do.

    n / tau, tau being the autocorrelation time of "above the median" (the only thing the median's interval depends
    on), summed by the initial positive sequence (Geyer 1992, Practical Markov Chain Monte Carlo, 3.3).
    Never more than n. Below 20 values nothing can be said about their autocorrelation, and they count in full.

    Args:
        centre: their median, where it is known.
    """
    n, centre = len(values), median(values) if centre is None else centre
    # One bit per value: a lag is then one shift and one count of bits, whatever n is.
    above = int("".join("1" if v > centre else "0" for v in values), 2)
    mean = above.bit_count() / n
    variance = mean * (1 - mean)
    if n < 20 or not variance:
        return n
    tau, lag = -1.0, 0
    # Farther apart few pairs of values are left, and the sum over them is noise.
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
    # In logarithms: from n = 1024 on, 2**n is no float.
    log_total = n * math.log(2)
    below, rank = 0.0, None
    for k in range((n + 1) // 2):
        below += math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - log_total)
        if below > tail:
            break
        rank = k
    return rank


_TABLE_LEVEL = 0.975
_T_TABLE = {
    2: 4.302652729749462, 3: 3.1824463052837078, 4: 2.7764451051977934, 5: 2.5705818356363146, 6: 2.4469118511449786,
    7: 2.364624251592784, 8: 2.306004135204166, 9: 2.262157162798205,
}  # fmt: skip
"""Student's quantiles at that level by degrees of freedom, of as many processes as rows have: what SciPy gives."""


@lru_cache(maxsize=1024)
def student_quantile(level: float, degrees: int) -> float:
    """The value that a share `level` of Student's distribution with `degrees` degrees of freedom lies below."""
    if level == _TABLE_LEVEL and degrees in _T_TABLE:
        return _T_TABLE[degrees]
    # Here, because NumPy and SciPy take 0.25 s to import, of which `benchax show` would consist.
    from scipy.special import stdtrit  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]

    return float(stdtrit(degrees, level))


# ---- shares -----------------------------------------------------------------------------------------------------


def share_interval(hits: int, n: int, level: float = 0.95) -> tuple[float, float]:
    """Exact two-sided interval for the probability of what happened `hits` times in `n` independent trials.

    Clopper & Pearson, Biometrika 26 (1934); the true coverage is at least `level`. Without trials it is (0, 1).
    """
    tail = (1 - level) / 2
    return _lower(hits, n, tail), _upper(hits, n, tail)


def upper_limit(hits: int, n: int, level: float = 0.95) -> float:
    """The exact one-sided limit: where the probability is above it, so few hits come in less than 1 - `level`."""
    return _upper(hits, n, 1 - level)


def _lower(hits: int, n: int, tail: float) -> float:
    return _beta(hits, n - hits + 1, tail) if hits else 0.0


def _upper(hits: int, n: int, tail: float) -> float:
    return _beta(hits + 1, n - hits, 1 - tail) if hits < n else 1.0


def _beta(a: int, b: int, probability: float) -> float:
    """The quantile of the beta distribution."""
    # Here, because SciPy takes 0.1 s to import, and few commands need a share.
    from scipy.special import betaincinv  # noqa: PLC0415  # pyright: ignore[reportMissingTypeStubs]

    return float(betaincinv(a, b, probability))
