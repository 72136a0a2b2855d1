"""Distribution-free confidence intervals. Times are skewed and have several modes: nothing here assumes a shape.

They are not independent either: neighbouring samples share the state of the machine (on a busy one, rank
autocorrelation 0.3 to 0.4 at lag 1). So the number of samples is deflated to an effective one first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from statistics import median


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
    size = int(effective_size(values))
    rank = interval_rank(size, level)
    if rank is None:
        return None
    ordered = sorted(values)
    place = (rank + 1) * (len(ordered) + 1) // (size + 1) - 1
    return ordered[place], ordered[-1 - place]


def effective_size(values: Sequence[float]) -> float:
    """How many independent draws would fix the median as well as `values`, in the order taken, do.

    n / tau, tau being the autocorrelation time of "above the median" (the only thing the median's interval depends
    on), summed by the initial positive sequence (Geyer 1992, Practical Markov Chain Monte Carlo, 3.3).
    Never more than n. Below 20 values nothing can be said about their autocorrelation, and they count in full.
    """
    n = len(values)
    centre = median(values)
    # One bit per value: a lag is then one shift and one count of bits, whatever n is.
    above = int("".join("1" if v > centre else "0" for v in values), 2)
    mean = above.bit_count() / n
    variance = mean * (1 - mean)
    if n < 20 or not variance:
        return n
    tau, lag = -1.0, 0
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
    log_total = n * math.log(2)
    below, rank = 0.0, None
    for k in range((n + 1) // 2):
        below += math.exp(math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) - log_total)
        if below > tail:
            break
        rank = k
    return rank
