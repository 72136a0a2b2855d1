"""Intervals of medians and of shares, and summaries: against tables, exact sums, and simulations with fixed seeds."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import bdtr, bdtrc

from benchax.stats.intervals import effective_size, interval_rank, median_interval, share_interval, upper_limit
from benchax.stats.summary import Summary, quantile, summarize

VALUES = st.lists(st.floats(0, 1e3), min_size=1, max_size=60)


def series(phi: float, n: int, repetitions: int, seed: int = 1) -> list[list[float]]:
    """Stationary AR(1) series with median 0; phi is the correlation of neighbours, 0 for independent values."""
    noise = np.random.default_rng(seed).standard_normal((repetitions, n))
    x = noise / math.sqrt(1 - phi**2)
    for i in range(1, n):
        x[:, i] = phi * x[:, i - 1] + noise[:, i]
    return x.tolist()


def covered(samples: list[list[float]], median: float = 0.0) -> float:
    """Share of the samples whose interval holds the true median. No interval counts as a miss."""
    intervals = [median_interval(values) for values in samples]
    return sum(i is not None and i[0] <= median <= i[1] for i in intervals) / len(intervals)


def binomial_error(share: float, repetitions: int) -> float:
    """Three standard errors: what a simulation with so many repetitions may be off."""
    return 3 * math.sqrt(share * (1 - share) / repetitions)


# Ranks


def exact_rank(n: int, level: Fraction) -> int | None:
    """By integers: the greatest r whose tail, P(B <= r) for B ~ Binomial(n, 1/2), is at most (1 - level) / 2."""
    tails = [Fraction(sum(math.comb(n, k) for k in range(r + 1)), 2**n) for r in range((n + 1) // 2)]
    return max((r for r, tail in enumerate(tails) if tail <= (1 - level) / 2), default=None)


@pytest.mark.parametrize("percent", [50, 80, 90, 95, 99])
def test_the_ranks_are_those_of_exact_arithmetic(percent: int) -> None:
    sizes = [*range(1, 60), 99, 100, 101, 250]

    found = {n: interval_rank(n, percent / 100) for n in sizes}

    assert found == {n: exact_rank(n, Fraction(percent, 100)) for n in sizes}
    # 2**-20000 is zero as a float. By the normal approximation the tail ends at n/2 - z sqrt(n)/2.
    tail = NormalDist().inv_cdf(0.5 + percent / 200) * math.sqrt(20_000) / 2
    assert interval_rank(20_000, percent / 100) == pytest.approx(10_000 - tail, abs=1.5)


# Intervals


@given(VALUES)
def test_both_ends_are_values_around_the_median(values: list[float]) -> None:
    found = median_interval(values)

    if found is None:
        assert effective_size(values) < 6
    else:
        assert found[0] in values
        assert found[1] in values
        assert found[0] <= float(np.median(values)) <= found[1]


TIES = [1.0, 2.0, 2.0, 1.0, 2.0, 3.0, 2.0, 2.0, 1.0, 2.0] * 4
# An order whose neighbours are not alike, so that no value is discounted: the interval is that of the table.
HUNDRED = [float(i // 2 if i % 2 else 99 - i // 2) for i in range(100)]


@pytest.mark.parametrize(
    ("values", "level", "interval"),
    [
        ([3.0], 0.95, None),
        ([3.0, 1.0, 5.0, 2.0, 4.0], 0.95, None),
        ([3.0, 1.0, 5.0, 2.0, 4.0], 0.9, (1.0, 5.0)),
        ([2.0] * 6, 0.95, (2.0, 2.0)),
        (TIES, 0.95, (2.0, 2.0)),  # of a coarse clock
        (HUNDRED, 0.95, (39.0, 60.0)),
        (HUNDRED, 0.5, (46.0, 53.0)),
    ],
)
def test_intervals_of_known_values(values: list[float], level: float, interval: tuple[float, float] | None) -> None:
    assert median_interval(values, level) == interval


# Coverage


@pytest.mark.parametrize(
    ("phi", "n", "level"),
    [
        *((0.0, n, 0.95) for n in (6, 10, 50, 100, 400)),
        *((phi, n, 0.93) for phi, n in ((0.4, 100), (0.4, 400), (0.8, 200), (0.8, 400))),
        # About 16 independent values' worth: too few to see their own dependence well. 91 % in 5000 repetitions.
        (0.8, 100, 0.91),
    ],
)
def test_independent_values_are_covered_at_the_level_and_dependent_ones_nearly(
    phi: float, n: int, level: float
) -> None:
    assert covered(series(phi, n, repetitions=600)) >= level - binomial_error(level, 600)


def test_intervals_are_not_wider_than_they_need_be() -> None:
    """For independent values the width is that of the plain ranks, but for a few that look dependent by chance."""
    samples, rank = series(0, 200, repetitions=200), interval_rank(200, 0.95)
    plain = [sorted(values)[-1 - rank] - sorted(values)[rank] for values in samples]  # type: ignore[operator]

    found = [high - low for low, high in filter(None, map(median_interval, samples))]

    assert float(np.mean(found)) <= 1.15 * float(np.mean(plain))


# Effective size


def mean_effective_size(phi: float, n: int) -> float:
    return float(np.mean([effective_size(values) for values in series(phi, n, repetitions=200)]))


def theoretical_size(phi: float, n: int) -> float:
    """Of "above the median" of an AR(1), whose autocorrelation at lag k is 2/pi asin(phi**k) (Sheppard 1899)."""
    return n / (1 + 2 * sum(2 / math.pi * math.asin(phi**k) for k in range(1, 200)))


@pytest.mark.parametrize(("phi", "n"), [(0.0, 100), (0.0, 400), (0.4, 400), (0.8, 400)])
def test_values_count_as_often_as_theory_says(phi: float, n: int) -> None:
    assert mean_effective_size(phi, n) == pytest.approx(theoretical_size(phi, n), rel=0.15 if phi == 0 else 0.2)


@given(
    st.lists(st.floats(allow_nan=False), min_size=1, max_size=80) | st.lists(st.sampled_from([1.0, 2.0]), min_size=1)
)
def test_no_more_than_there_are_and_at_least_one(values: list[float]) -> None:
    assert 1 <= effective_size(values) <= len(values)
    # Only above or below the median matters; a value, a constant, and one that alternates count in full.
    assert effective_size([v > float(np.median(values)) for v in values]) in (effective_size(values), len(values))
    assert [effective_size(v) for v in ([1.0], [1.0, 2.0], [7.0] * 100, [0.0, 1.0] * 50)] == [1, 2, 100, 100]


# Shares


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [
        # Newcombe, Statistics in Medicine 17 (1998), table I, method 5
        (81, 263, 0.2527, 0.3676),
        (15, 148, 0.0578, 0.1617),
        (0, 20, 0.0000, 0.1684),
        (1, 29, 0.0009, 0.1776),
    ],
)
def test_published_intervals(hits: int, n: int, low: float, high: float) -> None:
    assert share_interval(hits, n) == pytest.approx((low, high), abs=5e-5)
    # Without a hit: (1 - p)^n = 0.05. Without trials nothing is known.
    assert upper_limit(0, n) == pytest.approx(1 - 0.05 ** (1 / n))
    assert (share_interval(0, 0), upper_limit(0, 0)) == ((0.0, 1.0), 1.0)


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_at_the_ends_what_was_seen_is_just_improbable_enough(seen: tuple[int, int]) -> None:
    hits, n = seen

    low, high = share_interval(hits, n)

    assert low <= hits / n <= high
    if hits:
        assert bdtrc(hits - 1, n, low) == pytest.approx(0.025)
    if hits < n:
        assert bdtr(hits, n, high) == pytest.approx(0.025)
        assert bdtr(hits, n, upper_limit(hits, n)) == pytest.approx(0.05)


# ---- summaries: known lists, NumPy's quantiles, Tukey's fences ------------------------------------------------------


TIMES = st.lists(st.floats(0, 1e6), min_size=1, max_size=60)


def test_the_summary_of_a_known_list() -> None:
    values = [8.0, 1.0, 3.0, 2.0, 5.0, 4.0, 7.0, 6.0, 9.0]

    assert summarize(values) == Summary(
        n=9, median_s=5.0, low_s=2.0, high_s=8.0, q25_s=3.0, q75_s=7.0, min_s=1.0, max_s=9.0, outliers=0,
        mean_s=5.0, std_s=math.sqrt(7.5),
    )  # fmt: skip
    assert summarize([2.0]) == Summary(1, 2.0, None, None, 2.0, 2.0, 2.0, 2.0, 0, mean_s=2.0)


@given(TIMES, st.floats(0, 1))
def test_a_summary_is_that_of_numpy_and_its_interval_is_of_the_values_in_the_order_taken(
    values: list[float], q: float
) -> None:
    found, ordered = summarize(values), summarize(sorted(values))

    expected = np.quantile(values, [0, 0.25, 0.5, 0.75, 1])
    assert [found.min_s or 0.0, found.q25_s, found.median_s, found.q75_s, found.max_s] == pytest.approx(
        expected, rel=1e-12
    )
    assert quantile(sorted(values), q) == pytest.approx(float(np.quantile(values, q)), rel=1e-9, abs=1e-9)
    assert found.mean_s == pytest.approx(float(np.mean(values)), rel=1e-9)
    if len(values) > 1:
        assert found.std_s == pytest.approx(float(np.std(values, ddof=1)), rel=1e-6, abs=1e-6)
    assert (found.low_s, found.high_s) == (median_interval(values, 0.95) or (None, None))
    assert dataclasses.replace(ordered, low_s=found.low_s, high_s=found.high_s) == found


@pytest.mark.parametrize("least", [0.0, -1e-9])
def test_a_difference_that_is_not_above_zero_is_no_least_time(least: float) -> None:
    found = summarize([least, 1e-6, 2e-6])

    assert found.min_s is None
    assert (found.median_s, found.max_s) == (1e-6, 2e-6)


# Outliers


@pytest.mark.parametrize(
    ("values", "outliers"),
    [
        # Quartiles 2 and 4: the fences stand at -1 and 7, and a value upon them is within.
        ([1.0, 2.0, 3.0, 4.0, 7.0], 0),
        ([1.0, 2.0, 3.0, 4.0, 7.001], 1),
        ([-1.0, 2.0, 3.0, 4.0, 5.0], 0),
        ([-1.001, 2.0, 3.0, 4.0, 5.0], 1),
        ([-9.0, 2.0, 3.0, 4.0, 9.0], 2),
        ([5.0] * 9 + [5.001], 1),
        ([5.0] * 10, 0),
    ],
)
def test_outliers_lie_beyond_tukeys_fences(values: list[float], outliers: int) -> None:
    assert summarize(values).outliers == outliers


# Relative width


def summary(low_s: float | None, median_s: float, high_s: float | None) -> Summary:
    return Summary(9, median_s, low_s, high_s, median_s, median_s, median_s, median_s, 0)


@pytest.mark.parametrize(
    ("found", "width"),
    [
        (summary(9.0, 10.0, 11.0), 0.1),
        (summary(10.0, 10.0, 14.0), 0.2),
        (summary(10.0, 10.0, 10.0), 0.0),
        (summary(None, 10.0, None), None),
        (summary(9.0, 10.0, None), None),
        (summary(None, 10.0, 11.0), None),
        (summary(0.0, 0.0, 1.0), None),
        (summary(-2.0, -1.0, 1.0), None),
    ],
)
def test_the_relative_width_is_half_the_interval_over_the_median(found: Summary, width: float | None) -> None:
    assert found.relative_width == width
