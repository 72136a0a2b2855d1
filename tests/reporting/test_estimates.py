"""A time with its interval in a cell: "±" only where it is true, both ends where it is not, and what is unstable."""

from __future__ import annotations

import pytest
from source_tree import PACKAGE

from benchax.reporting.tables import estimate, spread
from benchax.stats.summary import Summary, summarize, summarize_run


def told(low: float | None, median: float, high: float | None, **more: object) -> Summary:
    values = {"q25_s": median, "q75_s": median, "min_s": median, "max_s": median, "outliers": 0, "n": 100}
    return Summary(**{"median_s": median, "low_s": low, "high_s": high, **values, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("low", "median", "high", "text"),
    [
        (0.99e-6, 1e-6, 1.01e-6, "1.00 µs ± 1.0 %"),
        (0.7e-6, 1e-6, 1.3e-6, "1.00 µs ± 30 %"),
        # As wide, but nearly all of it on one side.
        (0.95e-6, 1e-6, 1.5e-6, "0.950 – 1.50 µs"),
        # Lopsided, and so narrow that it does not matter.
        (0.999e-6, 1e-6, 1.021e-6, "1.00 µs ± 1.1 %"),
        (0.8e-6, 1e-6, 2.0e-6, "0.800 – 2.00 µs"),
        (None, 1e-6, None, "1.00 µs"),
        (1e-6, 5.45e-6, 22e-6, "unstable, 1.00 – 22.0 µs: readings drift, or have two modes"),
        (-1e-6, 1e-6, 2e-6, "unstable, -1.00 – 2.00 µs: readings drift, or have two modes"),
    ],
)
def test_the_form_follows_the_interval(low: float | None, median: float, high: float | None, text: str) -> None:
    assert estimate(told(low, median, high)) == text


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"n": 7}, "7 readings"),
        ({"process_medians_s": (1e-6, 1.5e-6, 2e-6, 8e-6, 9e-6), "n": 7}, "5 processes differ"),
        ({"q25_s": 1e-6, "q75_s": 9e-6}, "readings scatter"),
        ({}, "readings drift, or have two modes"),
    ],
)
def test_what_is_unstable_says_why(facts: dict[str, object], why: str) -> None:
    assert estimate(told(1e-6, 2e-6, 9e-6, **facts)).endswith(f": {why}")


def test_a_time_that_was_not_taken_is_empty() -> None:
    assert estimate(None) == ""
    assert spread(0.0, 0.0, 0.0) == ""


def test_no_width_of_a_hundred_percent_is_ever_written() -> None:
    """README's grid had "5.45 µs ± 192 %"."""
    readings = [10.0**k for k in range(-6, 0)]

    for s in (summarize(readings), summarize_run([readings[:3], readings[1:4], readings[2:]])):
        assert "±" not in estimate(s)


def test_this_is_the_one_place_that_writes_plus_or_minus() -> None:
    writers = [
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if any("±" in line and "±{" in line.replace(" ", "") for line in path.read_text(encoding="utf-8").splitlines())
    ]

    assert writers == ["reporting/tables.py"]
