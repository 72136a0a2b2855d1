"""What holds for every format: any row can be written, names survive, and nothing that is missing becomes a 0."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from exported_rows import BARE, FAILED, FULL, ODD, ROWS, SLOWER, document, named, text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from measurement_strategies import TEXT, measurements

from benchax.codec import decode_comparison, from_document
from benchax.errors import UsageError
from benchax.model import Comparison, Failure, Measurement
from benchax.printable import spell_for_xml
from benchax.reporting import asv
from benchax.reporting.exports import FORMATS, LONGEST_NAME, NAMES, bencher_name, check_format, entries

csv.field_size_limit(10**7)  # Python's reader stops at 128 KiB, which four parameters of 10,000 characters may exceed
JSON = ("bencher", "github-action", "json", "pytest-benchmark")


def test_an_unknown_format_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        UsageError, match=r"unknown format 'jUnit'\nexpected 'junit'\? Permitted is one of: asv, bencher"
    ):
        check_format("jUnit")
    for name in NAMES:
        check_format(name)


# Drawing whole Measurements takes longer than the default limits foresee.
@settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(measurements(), max_size=2))
def test_any_rows_can_be_written_and_read(rows: list[Measurement]) -> None:
    for format in JSON:
        document(format, tuple(rows))
    json.loads(text("google-benchmark", tuple(rows)))
    ElementTree.fromstring(text("junit", tuple(rows)).encode(errors="backslashreplace"))
    lines = list(csv.reader(io.StringIO(text("csv", tuple(rows)), newline="")))
    assert [len(line) for line in lines] == [len(lines[0])] * (len(rows) + 1)
    table = text("markdown", tuple(rows)).split("\n")
    assert len({line.count("|") for line in table[: len(rows) + 2]}) == 1


def names_in(format: str, content: str) -> list[Any]:
    match format:
        case "csv":
            return [line["name"] for line in csv.DictReader(io.StringIO(content, newline=""))]
        case "junit":
            return [case.get("name") for case in ElementTree.fromstring(content).iter("testcase")]
        case "bencher":
            return list(json.loads(content))
        case "github-action":
            return [each["name"] for each in json.loads(content)]
        case "json":
            return [each["case"]["name"] for each in json.loads(content)["measurements"]]
        case _:
            return [each["name"] for each in json.loads(content)["benchmarks"]]


@pytest.mark.parametrize("format", [name for name in FORMATS if name != "markdown"])
@given(name=TEXT | st.just(ODD) | st.just("f" * 10_000))
@settings(max_examples=25)
def test_a_name_comes_back_as_it_was(format: str, name: str) -> None:
    """But for what XML has no character for, and for names that are too long for Bencher: these are marked."""
    as_written = {"junit": spell_for_xml, "bencher": bencher_name}.get(format, lambda text: text)
    expected = name if format in ("csv", "json") else as_written(name or "(no name)")

    assert names_in(format, text(format, (named(name),))) == [expected]


@pytest.mark.parametrize("format", FORMATS)
def test_what_was_not_measured_is_nowhere_a_number(format: str) -> None:
    """BARE has neither compile time nor memory nor an interval; FAILED has nothing."""
    content = text(format, (BARE, FAILED))

    assert not re.search(r"compile_s\W+\d|build-time|· compile|bytes\W+\d|range|lower_value", content)


@pytest.mark.parametrize("format", FORMATS)
def test_times_of_the_timer_that_was_asked_for(format: str) -> None:
    both = replace(
        named("f"), samples=(*named("f").samples, replace(named("f").samples[0], timer="loop", iterations=4))
    )

    assert text(format, (both,)) != text(format, (both,), timer="loop")
    assert text(format, (both,)) == text(format, (both,), timer="wall")


def test_no_rows_are_no_error() -> None:
    for format in FORMATS:
        assert text(format, ())
    assert asv.files(entries([]), {})


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30), st.integers(1, 3000))
def test_names_are_cut_to_what_bencher_takes_and_stay_apart(part: str, times: int) -> None:
    label = part * times

    assert len(bencher_name(label).encode()) <= LONGEST_NAME
    assert bencher_name(label) == label or len(label.encode()) > LONGEST_NAME
    assert bencher_name(label + "a" * 2000) != bencher_name(label + "b" * 2000)


def case(rows=ROWS, comparisons: tuple[Comparison, ...] = ()) -> Element:
    ((found, *_),) = ElementTree.fromstring(text("junit", rows, comparisons))
    return found


def test_a_case_without_samples_is_skipped() -> None:
    assert case((replace(BARE, samples=()),)).find("skipped") is not None


@pytest.mark.parametrize("change", [{"confirmed": False}, {"verdict": "unclear"}, {"verdict": "faster"}])
def test_what_is_not_told_from_chance_is_no_failure(change: dict) -> None:
    """It is told of in the output of the test all the same."""
    found = case((FULL,), (replace(SLOWER, **change),))

    assert found.find("failure") is None
    assert "+20 % (+10 to +30 %)" in (found.findtext("system-out") or "")


def test_control_characters_are_spelled_out() -> None:
    assert spell_for_xml("a\x00b\x1b\tc\nd\ud800\uffff") == "a\\x00b\\x1b\tc\nd\\ud800\\uffff"


def test_a_reader_of_junit_reads_it() -> None:
    junitparser = pytest.importorskip("junitparser")

    (found,) = junitparser.JUnitXml.fromstring(text("junit", (*ROWS, named("a\x00 <&>\nb")), (SLOWER,)).encode())

    assert [c.name for c in found] == ["fft[n=256, dtype=f32] #new", "sum", "bad", "a\\x00 <&>\nb"]
    assert [type(r).__name__ for c in found for r in c.result] == ["Failure", "Error"]


NEVER = replace(FAILED, failure=Failure("not_run", "inputs", "the budget was spent"))
SHOWN = {
    "several cases": (ROWS, (SLOWER,)),
    "one number": ((BARE,), ()),
    "one case": ((FULL,), ()),
    "a failure": ((FAILED,), ()),
    "one that was never run": ((NEVER,), ()),
}


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("format", [name for name in FORMATS if name not in ("json", "pytest-benchmark")])
def test_each_format_has_all_that_it_can_say_and_nothing_that_was_not_measured(
    format: str, name: str, snapshot: Any
) -> None:
    """By the keys that the readers of the formats take: docs/how-to/exports.md. The others have every reading."""
    assert text(format, *SHOWN[name]) == snapshot


def test_no_text_breaks_the_table_or_calls_anyone() -> None:
    table = text("markdown", (named(ODD), named("@octocat [x](http://y) <script>|")))

    lines = table.splitlines()[2:4]
    assert [line.count("|") for line in lines] == [4, 4]
    assert not set("@[]<`") & set(table.split("times by")[0].replace("---", ""))


def test_measurements_and_comparisons_come_back_whole_with_their_summaries() -> None:
    found = document("json", ROWS, (SLOWER,))

    assert [from_document(m) for m in found["measurements"]] == list(ROWS)
    assert [decode_comparison(json.dumps(c)) for c in found["comparisons"]] == [SLOWER]
    full, _, failed = found["measurements"]
    assert (full["summary"]["median_s"], full["summary"]["low_s"], full["timer"]) == (1.2e-4, 1.1e-4, "wall")
    assert (failed["summary"], failed["why"]) == (None, "it ended with timeout in compile: over 3 s")
