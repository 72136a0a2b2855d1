"""What holds for every format: any row can be written, names survive, and nothing that is missing becomes a 0."""

from __future__ import annotations

import csv
import io
import json
import re
from dataclasses import replace
from typing import Any
from xml.etree import ElementTree

import pytest
from exported_rows import BARE, FAILED, ODD, document, named, text
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from measurement_strategies import TEXT, measurements

from benchax.errors import UsageError
from benchax.model import Measurement
from benchax.printable import spell_for_xml
from benchax.reporting.exports import FORMATS, NAMES, asv, check_format
from benchax.reporting.exports.entries import entries
from benchax.reporting.exports.formats import bencher_name

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
