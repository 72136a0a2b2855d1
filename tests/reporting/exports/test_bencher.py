"""Bencher Metric Format, by its schema (bencher.dev, bmf.json) and the limits of its names."""

from __future__ import annotations

from exported_rows import BARE, FAILED, FULL, document
from hypothesis import given
from hypothesis import strategies as st

from benchax.reporting.exports.formats import LONGEST_NAME
from benchax.reporting.exports.formats import bencher_name as name


def test_measures_are_those_of_the_schema() -> None:
    found = document("bencher")

    assert found
    for measures in found.values():
        assert measures
        for slug, metric in measures.items():
            assert slug == slug.lower().replace("_", "-")
            assert {"value"} <= metric.keys() <= {"value", "lower_value", "upper_value"}
            assert all(isinstance(number, int | float) for number in metric.values())


def test_latency_is_in_nanoseconds_with_its_interval_and_build_time_in_seconds() -> None:
    (measures,) = document("bencher", (FULL,)).values()

    assert measures["latency"] == {"value": 120_000.0, "lower_value": 110_000.0, "upper_value": 130_000.0}
    assert measures["build-time"] == {"value": 0.25}
    assert measures["predicted-peak-bytes"] == {"value": 2097164}


def test_no_interval_is_no_bound() -> None:
    assert document("bencher", (BARE,)) == {"sum": {"latency": {"value": 2000.0}}}


def test_a_case_without_numbers_is_left_out() -> None:
    assert document("bencher", (FAILED,)) == {}


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30), st.integers(1, 3000))
def test_names_are_cut_to_what_bencher_takes_and_stay_apart(part: str, times: int) -> None:
    label = part * times

    assert len(name(label).encode()) <= LONGEST_NAME
    assert name(label) == label or len(label.encode()) > LONGEST_NAME
    assert name(label + "a" * 2000) != name(label + "b" * 2000)
