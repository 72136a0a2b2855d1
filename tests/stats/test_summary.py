"""Summaries: known lists, NumPy's quantiles, Tukey's fences."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.stats.intervals import median_interval
from benchax.stats.summary import Summary, quantile, summarize

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
