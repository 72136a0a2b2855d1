"""JUnit XML: what failed, what is slower, and any text."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from exported_rows import BARE, FAILED, FULL, ROWS, SLOWER, named, text
from hypothesis import given
from hypothesis import strategies as st

from benchax.model import Comparison, Failure
from benchax.printable import spell_for_xml


def suite(rows=ROWS, comparisons: tuple[Comparison, ...] = ()) -> Element:
    (found,) = ElementTree.fromstring(text("junit", rows, comparisons))
    return found


def case(rows=ROWS, comparisons: tuple[Comparison, ...] = ()) -> Element:
    return suite(rows, comparisons).findall("testcase")[0]


def test_a_case_is_a_test_and_the_suite_counts_them() -> None:
    found = suite(ROWS, (SLOWER,))

    assert [c.get("name") for c in found] == ["fft[n=256, dtype=f32] #new", "sum", "bad"]
    assert [found.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "1", "1", "0"]


def test_the_time_is_the_median_and_is_left_out_where_there_is_none() -> None:
    assert [c.get("time") for c in suite()] == ["0.000120000", "0.000002000", None]


def test_a_failed_case_is_an_error_with_advice_and_traceback() -> None:
    error = case((FAILED,)).find("error")

    assert error is not None
    assert (error.get("type"), error.get("message")) == ("timeout", "in compile: over 3 s")
    assert error.text == "try less\nTrace\nback"


def test_a_case_that_was_never_run_is_skipped() -> None:
    never = replace(FAILED, failure=Failure("not_run", "inputs", "the budget was spent"))

    assert case((never,)).find("skipped") is not None
    assert case((replace(BARE, samples=()),)).find("skipped") is not None


def test_what_is_called_slower_is_a_failure() -> None:
    failure = case((FULL,), (SLOWER,)).find("failure")

    assert failure is not None
    assert failure.get("type") == "slower"
    assert "+20 % (+10 to +30 %)" in (failure.get("message") or "")


@pytest.mark.parametrize("change", [{"confirmed": False}, {"verdict": "unclear"}, {"verdict": "faster"}])
def test_what_is_not_told_from_chance_is_no_failure(change: dict) -> None:
    """It is told of in the output of the test all the same."""
    found = case((FULL,), (replace(SLOWER, **change),))

    assert found.find("failure") is None
    assert "+20 % (+10 to +30 %)" in (found.findtext("system-out") or "")


def test_numbers_are_properties_and_what_was_not_measured_is_none() -> None:
    full, bare = ({p.get("name"): p.get("value") for p in case((m,)).iter("property")} for m in (FULL, BARE))

    assert full["compile_s"] == "0.25"
    assert bare == {"median_s": "2e-06"}


@given(st.text())
def test_any_text_can_be_an_attribute(name: str) -> None:
    root = ElementTree.fromstring(ElementTree.tostring(Element("a", name=spell_for_xml(name))))

    assert root.get("name") == spell_for_xml(name)


def test_control_characters_are_spelled_out() -> None:
    assert spell_for_xml("a\x00b\x1b\tc\nd\ud800\uffff") == "a\\x00b\\x1b\tc\nd\\ud800\\uffff"


def test_a_reader_of_junit_reads_it() -> None:
    junitparser = pytest.importorskip("junitparser")

    (found,) = junitparser.JUnitXml.fromstring(text("junit", (*ROWS, named("a\x00 <&>\nb")), (SLOWER,)).encode())

    assert [c.name for c in found] == ["fft[n=256, dtype=f32] #new", "sum", "bad", "a\\x00 <&>\nb"]
    assert [type(r).__name__ for c in found for r in c.result] == ["Failure", "Error"]
