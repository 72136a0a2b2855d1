"""Exact intervals of shares, against published values and the definition."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from benchax.stats.intervals import share_interval, upper_limit


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


def test_without_a_hit_the_limit_is_that_of_a_series_of_misses() -> None:
    """(1 - p)^n = 0.05; for 240 trials about 3 / n, the "rule of three"."""
    assert upper_limit(0, 240) == pytest.approx(1 - 0.05 ** (1 / 240))


def test_without_trials_nothing_is_known() -> None:
    assert share_interval(0, 0) == (0.0, 1.0)
    assert upper_limit(0, 0) == 1.0


@given(st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_at_the_ends_what_was_seen_is_just_improbable_enough(seen: tuple[int, int]) -> None:
    hits, n = seen

    low, high = share_interval(hits, n)

    assert low <= hits / n <= high
    if hits:
        assert binom.sf(hits - 1, n, low) == pytest.approx(0.025)
    if hits < n:
        assert binom.cdf(hits, n, high) == pytest.approx(0.025)
        assert binom.cdf(hits, n, upper_limit(hits, n)) == pytest.approx(0.05)
