"""A time with its interval: the median is always there, in one form, and what is unstable has a mark."""

from __future__ import annotations

import pytest

from benchax.reporting.tables import agreement, estimate, scope, spread
from benchax.stats.summary import Summary, summarize, summarize_run


def summary(low: float | None, median: float, high: float | None, **more: object) -> Summary:
    values = {"q25_s": median, "q75_s": median, "min_s": median, "max_s": median, "outliers": 0, "n": 100}
    return Summary(**{"median_s": median, "low_s": low, "high_s": high, **values, **more})  # type: ignore[arg-type]


def of_processes(*medians_s: float) -> Summary:
    return summarize_run([(median_s,) * 6 for median_s in medians_s])


@pytest.mark.parametrize(
    ("low", "median", "high", "text"),
    [
        (5.08e-3, 5.16e-3, 5.31e-3, "5.16 ms (5.08–5.31)"),
        # Both ends are in the unit of the median.
        (0.95e-3, 0.98e-3, 1.02e-3, "980 µs (950–1020)"),
        # With more digits, if the ends would read the same.
        (1.2341e-3, 1.2342e-3, 1.2344e-3, "1.23 ms (1.2341–1.2344)"),
        (None, 1e-6, None, "1.00 µs"),
        (0.9e-3, 1.3e-3, 6.34e-3, "1.30 ms (0.900–6.34, unstable)"),
        (-1e-6, 1e-6, 2e-6, "1.00 µs (-1.00–2.00, unstable)"),
    ],
)
def test_a_median_is_followed_by_its_interval(low: float | None, median: float, high: float | None, text: str) -> None:
    assert estimate(summary(low, median, high)) == text


def test_a_time_that_was_not_taken_is_empty() -> None:
    assert estimate(None) == ""
    assert spread(0.0, 0.0, 0.0) == ""


@pytest.mark.parametrize(
    ("medians_s", "text"),
    [
        ((1.0, 1.0, 1.05), "3 processes agree"),
        ((5.0e-3, 5.1e-3, 5.1e-3, 5.2e-3, 6.4e-3), "4 of 5 processes agree; one was slow (6.40 ms)"),
        ((4.0e-3, 5.1e-3, 5.1e-3, 5.2e-3, 5.1e-3), "4 of 5 processes agree; one was fast (4.00 ms)"),
        ((1.0, 1.0, 1.0, 1.5, 1.6), "3 of 5 processes agree; 2 were slow (1.50 – 1.60 s)"),
        ((0.5, 1.0, 1.0, 1.0, 2.0), "3 of 5 processes agree; one was slow (2.00 s), one was fast (500 ms)"),
        ((1.0, 2.0, 4.0), "3 processes differ: 1.00 – 4.00 s"),
    ],
)
def test_processes_that_agree_are_counted_and_the_others_are_named(medians_s: tuple[float, ...], text: str) -> None:
    assert agreement(of_processes(*medians_s)) == text


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"n": 7}, "7 readings are few"),
        ({"q25_s": 1e-6, "q75_s": 9e-6}, "the readings scatter"),
        ({}, "the readings drift or have two modes"),
    ],
)
def test_one_process_says_that_it_is_one_and_why_it_is_unstable(facts: dict[str, object], why: str) -> None:
    assert agreement(summary(0.9e-6, 1e-6, 1.1e-6, **facts)) == "one process only"
    assert agreement(summary(1e-6, 2e-6, 9e-6, **facts)) == f"one process only, {why}"


@pytest.mark.parametrize(
    ("median_s", "text"),
    [
        (1.0, "as in 61 earlier runs"),
        (2.0, "slower than all of 61 earlier runs ("),
        (0.5, "faster than all of 61 earlier runs ("),
    ],
)
def test_a_run_is_compared_with_the_range_of_earlier_ones_and_not_with_the_newest(median_s: float, text: str) -> None:
    earlier = [*[1.0] * 60, 0.9]

    assert agreement(summarize_run([(median_s,) * 6], earlier)).startswith(text)


def test_an_interval_speaks_for_a_later_run_if_several_processes_were_measured() -> None:
    assert scope(of_processes(1.0, 1.1)) == "a later run"
    assert scope(summarize([1.0, 1.1])) == "this process"
