"""What holds for every format: any row can be written, names survive, and nothing that is missing becomes a 0."""

from __future__ import annotations

import csv
import io
import json
import math
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

    assert len(bencher_name(label).encode()) <= LONGEST_NAME
    assert bencher_name(label) == label or len(label.encode()) > LONGEST_NAME
    assert bencher_name(label + "a" * 2000) != bencher_name(label + "b" * 2000)


def lines() -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text("csv", ROWS, (SLOWER,)), newline="")))


def test_numbers_come_back_without_loss() -> None:
    full = lines()[0]

    assert (float(full["median_s"]), float(full["low_s"]), float(full["compile_s"])) == (1.2e-4, 1.1e-4, 0.25)
    assert (full["n"], full["iterations"], full["timer"], full["is_dirty"]) == ("6", "1", "wall", "true")
    assert json.loads(full["params"]) == {"n": 256, "dtype": "f32"}


def test_the_comparison_of_run_times_stands_beside_them() -> None:
    full, bare, _ = lines()

    assert (full["verdict"], full["baseline"], full["ratio"], full["ratio_high"]) == ("slower", "v1", "1.2", "1.3")
    assert (bare["verdict"], bare["ratio"]) == ("", "")


def test_what_is_done_in_a_second_has_columns_of_its_own_behind_the_others() -> None:
    full, bare, _ = lines()

    assert list(full)[-2:] == ["samples_per_s", "bytes_per_s"]
    assert float(full["samples_per_s"]) == 32 / float(full["median_s"])
    assert bare["samples_per_s"] == ""


def test_what_was_not_measured_is_empty_and_says_why() -> None:
    _, bare, failed = lines()

    assert (bare["median_s"], bare["low_s"], bare["compile_s"], bare["why"]) == ("2e-06", "", "", "")
    assert (failed["status"], failed["median_s"], failed["n"]) == ("timeout", "", "")
    assert failed["why"] == "it ended with timeout in compile: over 3 s"


def test_each_entry_has_the_keys_that_the_action_takes() -> None:
    """extract.ts: name, value, unit; range and extra are optional texts."""
    entries = document("github-action")

    assert entries
    for entry in entries:
        assert {"name", "value", "unit"} <= entry.keys() <= {"name", "value", "unit", "range", "extra"}
        assert isinstance(entry["value"], int | float)


def test_every_metric_is_a_series_of_its_own_with_a_fixed_unit() -> None:
    found = {entry["name"]: (entry["value"], entry["unit"]) for entry in document("github-action", (FULL,))}

    label = "fft[n=256, dtype=f32] #new"
    assert found == {
        label: (120_000.0, "ns"),
        f"{label} · compile": (250.0, "ms"),
        f"{label} · peak memory": (2097152, "B"),
        f"{label} · planned peak": (2097164, "B"),
        f"{label} · constants": (16, "B"),
        f"{label} · operations": (1.3e6, "FLOP"),
    }


def test_the_range_is_the_interval_of_the_median() -> None:
    full, bare = document("github-action", (FULL,))[0], document("github-action", (BARE,))[0]

    assert full["range"] == "95 %: 110 – 130 µs"
    assert "range" not in bare


def test_a_failed_case_is_left_out() -> None:
    assert document("github-action", (FAILED,)) == []


def rows() -> list[dict[str, Any]]:
    return json.loads(text("google-benchmark", ROWS))["benchmarks"]


def test_a_row_has_what_compare_py_looks_at() -> None:
    """report.py: is_potentially_comparable_benchmark, calculate_geomean; util.py: sort_benchmark_results."""
    needed = {"name", "run_type", "real_time", "cpu_time", "time_unit", "repetition_index", "family_index"}

    assert all(needed <= row.keys() for row in rows())
    assert json.loads(text("google-benchmark"))["context"]["json_schema_version"] == 1


def test_the_time_is_the_median_in_nanoseconds_and_all_calls_are_counted() -> None:
    full = rows()[0]

    assert (full["real_time"], full["time_unit"], full["iterations"]) == (120_000.0, "ns", 6)
    assert full["label"] == "median of 6 samples by wall: latency a caller sees"
    assert (full["compile_s"], full["predicted_peak_bytes"], full["low_95_s"]) == (0.25, 2097164, 1.1e-4)


def test_cpu_time_is_not_made_up() -> None:
    """compare.py needs the key; NaN is how the library writes a number that is none."""
    assert all(math.isnan(row["cpu_time"]) for row in rows())


def test_one_row_per_case_so_that_no_test_takes_readings_for_independent() -> None:
    assert [row["repetitions"] for row in rows()] == [1, 1, 1]


def test_a_failure_is_an_error_without_a_time() -> None:
    failed = rows()[2]

    assert failed["error_occurred"] is True
    assert failed["error_message"] == "it ended with timeout in compile: over 3 s"
    assert math.isnan(failed["real_time"])
    assert FAILED.failure is not None


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


SHOWN = {
    "several cases": (ROWS, (SLOWER,)),
    "one number": ((BARE,), ()),
    "one case": ((FULL,), ()),
    "a failure": ((FAILED,), ()),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_line_per_case_without_empty_columns_and_what_is_missing_below(name: str, snapshot: Any) -> None:
    assert text("markdown", *SHOWN[name]) == snapshot


def test_no_text_breaks_the_table_or_calls_anyone() -> None:
    table = text("markdown", (named(ODD), named("@octocat [x](http://y) <script>|")))

    lines = table.splitlines()[2:4]
    assert [line.count("|") for line in lines] == [4, 4]
    assert not set("@[]<`") & set(table.split("times by")[0].replace("---", ""))


def test_measurements_and_comparisons_come_back_whole() -> None:
    found = document("json", ROWS, (SLOWER,))

    assert [from_document(m) for m in found["measurements"]] == list(ROWS)
    assert [decode_comparison(json.dumps(c)) for c in found["comparisons"]] == [SLOWER]


def test_summaries_stand_beside_the_readings() -> None:
    full, _, failed = document("json")["measurements"]

    assert (full["summary"]["median_s"], full["summary"]["low_s"], full["timer"]) == (1.2e-4, 1.1e-4, "wall")
    assert (failed["summary"], failed["why"]) == (None, "it ended with timeout in compile: over 3 s")
