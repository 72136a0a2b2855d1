"""What holds for every format: any row can be written, names survive, and nothing that is missing becomes a 0."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from measurement_strategies import (
    BARE,
    FAILED,
    FULL,
    HOST,
    ODD,
    RICH,
    ROWS,
    SLOWER,
    TEXT,
    document,
    measured,
    measurements,
    named,
    text,
)

from benchax.codec import decode_comparison, from_document
from benchax.errors import UsageError
from benchax.model import Absent, CaseId, Comparison, Cost, Failure, Measurement, Opaque, Samples, Stages
from benchax.printable import spell_for_xml
from benchax.reporting import asv
from benchax.reporting.asv import COLUMNS, files, merge
from benchax.reporting.exports import (
    FORMATS,
    LONGEST_NAME,
    NAMES,
    ExportedCase,
    bencher_name,
    check_format,
    common_environment,
    entries,
    plain,
    stats,
)

csv.field_size_limit(10**7)  # Python's reader stops at 128 KiB, which four parameters of 10,000 characters may exceed
JSON = ("bencher", "github-action", "json", "pytest-benchmark")


def test_an_unknown_format_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"unknown format 'jUnit'\nexpected 'junit'\? Choices: asv, bencher"):
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


@pytest.mark.parametrize("change", [{"confirmed": False}, {"verdict": "unclear"}, {"verdict": "faster"}])
def test_what_is_not_told_from_chance_is_no_failure(change: dict) -> None:
    """It is told of in the output of the test all the same."""
    found = case((FULL,), (replace(SLOWER, **change),))

    assert found.find("failure") is None
    assert "+20 % (+10 to +30 %)" in (found.findtext("system-out") or "")


def test_a_reader_of_junit_reads_it() -> None:
    junitparser = pytest.importorskip("junitparser")

    rows = (*ROWS, named("a\x00\x1b <&>\tb\nc\ud800\uffff"))

    (found,) = junitparser.JUnitXml.fromstring(text("junit", rows, (SLOWER,)).encode())

    names = ["fft[n=256, dtype=f32] #new", "sum", "bad", "a\\x00\\x1b <&>\tb\nc\\ud800\\uffff"]
    assert [c.name for c in found] == names
    assert [type(r).__name__ for c in found for r in c.result] == ["Failure", "Error"]


NEVER = replace(FAILED, failure=Failure("not_run", "inputs", "the budget was spent"))
SHOWN = {
    "several cases": (ROWS, (SLOWER,)),
    "one number": ((BARE,), ()),
    "one case": ((FULL,), ()),
    "a failure": ((FAILED,), ()),
    "one that was never run": ((NEVER,), ()),
    "one without samples": ((replace(BARE, samples=()),), ()),
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


# ---- which numbers of a case may leave the house, and under which name ----------------------------------------------


def entry(m: Measurement, timer: str | None = None) -> ExportedCase:
    (found,) = entries([m], timer=timer)
    return found


def with_samples(*samples: Samples) -> Measurement:
    return replace(measured(), samples=samples)


def test_the_headline_is_told_of_where_no_timer_is_named() -> None:
    m = with_samples(Samples("wall", 1, (3.0,)), Samples("loop", 2, (4.0,)))

    assert [s.median_s for s in (entry(m).summary, entry(m, "loop").summary) if s] == [3.0, 2.0]
    assert [e.why for e in entries([measured("f"), m], timer="loop")] == ["it was not timed by loop", ""]


def test_a_timer_that_no_case_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no case was timed by 'lop'\nexpected 'loop'\? Choices: loop"):
        entries([with_samples(Samples("wall", 1, (3.0,)), Samples("loop", 2, (4.0,)))], timer="lop")


@pytest.mark.parametrize(
    ("cache", "expected"), [("off", 0.5), ("miss", 0.5), (None, 0.5), ("hit", None), ("warm", None)]
)
def test_what_was_not_compiled_has_no_time_to_compile(cache, expected: float | None) -> None:
    assert entry(replace(measured(), stages=Stages(compile_s=0.5, cache=cache))).compile_s == expected


def test_operations_of_a_program_with_loops_are_not_known() -> None:
    """XLA counts the body of a loop once."""
    found = [
        entry(replace(measured(), cost=Cost(flops=8.0, has_loops=has_loops))).counted for has_loops in (False, True)
    ]

    assert found == [{"flops": 8.0}, {}]


def test_cases_that_read_the_same_keep_names_of_their_own() -> None:
    """A reader goes by the name; two cases of one name would be one."""
    cases = [CaseId("f", (("n", 1),)), CaseId("f", (("n", "1"),)), CaseId("g"), CaseId("")]

    labels = [e.label for e in entries([replace(measured(), case=case) for case in cases])]

    assert labels[2:] == ["g", "(no name)"]
    assert len(set(labels)) == 4
    assert all(label.startswith("f[n=1] ~") for label in labels[:2])


def test_only_facts_that_hold_for_all_rows_are_said_of_the_file() -> None:
    here, there = measured(), replace(measured(), environment=replace(HOST, commit="c0ffee", host="elsewhere"))

    assert common_environment([here, here])["host"] == "host"
    assert "host" not in common_environment([here, there])
    assert common_environment([here, there])["commit"] == "c0ffee"
    assert common_environment([]) == {}


def test_parameters_are_strict_json() -> None:
    given = (1, (2.5, None), float("inf"), Opaque("dtype", "float32"), "x")

    assert plain(given) == [1, [2.5, None], "inf", "float32", "x"]


NO_TIMES, NO_COST = "the readings of wall aren't times", "the readings of wall are not above the clock's own cost"
TIMED = Samples("wall", 1, (1.0,) * 9)


@pytest.mark.parametrize(
    ("m", "why"),
    [
        (with_samples(Samples("wall", 1, (1.0, float("nan")))), NO_TIMES),
        (with_samples(Samples("wall", 1, (1.0, 1e300))), NO_TIMES),
        (with_samples(Samples("wall", 0, (1.0,))), NO_TIMES),
        (with_samples(Samples("wall", 1, (5e-324,))), NO_COST),
        (with_samples(Samples("wall", 1, (0.0, 0.0))), NO_COST),
        (with_samples(Samples("wall", 1, (1.0,), overhead_s=2.0)), NO_COST),
        (with_samples(Samples("wall", 1, ())), "it was not timed by any timer"),
        # A summary is over all processes: an export crashed, or wrote an infinity.
        (with_samples(TIMED, Samples("wall", 1, (), process=1)), NO_TIMES),
        (with_samples(TIMED, Samples("wall", 0, (1.0,), process=1)), NO_TIMES),
        (with_samples(TIMED, Samples("wall", 1, (float("inf"),), process=1)), NO_TIMES),
        (replace(with_samples(), not_measured=(Absent("samples.in_graph", "it has callbacks"),)), "it has callbacks"),
        (RICH, "it ended with wrong output in verify: off by 0.1"),
        (
            replace(measured(), failure=Failure("timeout", "compile", "over 3 s", traceback="a\nb")),
            "it ended with timeout in compile: over 3 s",
        ),
    ],
)
def test_a_case_without_times_has_none_and_says_why(m: Measurement, why: str) -> None:
    found = entry(m)

    assert (found.samples, found.summary, found.why) == (None, None, why)
    assert found.detail == f"not measured, because {why}"
    assert not m.failure or (found.compile_s, found.counted) == (None, {})


# ---- the folder that asv reads: by its keys (asv 0.6.6, results.py, benchmarks.py, machine.py) ----------------------

DATES = {"c0ffee": 1_700_000_000}


def written_by(*rows: Measurement) -> dict[str, Any]:
    return {path: json.loads(text) for path, text in files(entries(rows), DATES).items()}


def columns_of(*rows: Measurement) -> dict[str, Any]:
    """Of the only benchmark, commit, and environment."""
    (found,) = (text for path, text in written_by(*rows).items() if path.startswith("host/c0ffee-"))
    (row,) = found["results"].values()
    return dict(zip(COLUMNS, row, strict=True))


def f(time_s: float, **params: Any) -> Measurement:
    return measured("f", elapsed_s=(time_s,) * 10, **params)


def test_a_sparse_grid_is_one_axis() -> None:
    """Else a hundred pairs of sizes would have ten thousand cells."""
    rows = [f(float(n), n=n, m=-n) for n in range(1, 31)]

    assert written_by(*rows)["benchmarks.json"]["f"]["param_names"] == ["n, m"]
    assert columns_of(*rows)["result"] == [float(n) for n in range(1, 31)]


def test_a_host_is_a_folder_inside_the_output() -> None:
    m = replace(f(1.0), environment=replace(HOST, commit="c0ffee", host="../a b/ü"))

    folders = {path.rpartition("/")[0] for path in written_by(m)}

    assert all(".." not in folder and folder.count("/") == 0 for folder in folders)


def test_rows_outside_of_any_commit_are_refused() -> None:
    m = replace(f(1.0), environment=HOST)

    with pytest.raises(UsageError, match="'f' was measured outside of any commit\nexpected rows with a commit"):
        written_by(m)


def test_what_the_folder_holds_already_stays() -> None:
    old, new = (files(entries([m]), DATES) for m in (f(1.0), measured("g", elapsed_s=(2.0,))))

    together = {path: json.loads(merge(old[path], new[path])) for path in old}

    (path,) = (path for path in together if "c0ffee" in path)
    assert together["benchmarks.json"].keys() == {"f", "g", "version"}
    assert {name: row[0] for name, row in together[path]["results"].items()} == {"f": [1.0], "g": [2.0]}
    with pytest.raises(UsageError, match="is not JSON"):
        merge("not", "{}")
    with pytest.raises(UsageError, match="is not JSON"):
        merge(b"\xff", "{}")


GRID = (f(1.0, n=8, t="a"), f(2.0, n=8, t="b"))


DIRTY = replace(f(2.0), environment=replace(f(2.0).environment, is_dirty=True))
FOLDERS = {
    "parameters, of which the last varies fastest": (*GRID, f(3.0, n=16, t="a"), f(4.0, n=16, t="b")),
    "not measured is NaN, failed is null": (
        *GRID,
        replace(f(1.0, n=16, t="a"), failure=Failure("error", "trace", "no")),
    ),
    "values of two types": (f(1.0, n=1), f(2.0, n="1"), f(3.0, n=True), f(4.0, n=Opaque("int", "1")), f(5.0)),
    "an interval": (measured("f", elapsed_s=tuple(map(float, range(1, 20)))),),
    "too few readings for an interval": (measured("f", elapsed_s=(1.0, 2.0)),),
    "a dirty tree is another environment": (f(1.0), DIRTY),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_files_have_the_keys_and_places_of_asv_and_no_readings(name: str, snapshot: Any) -> None:
    """asv would take the readings of one process for independent ones."""
    assert files(entries(FOLDERS[name]), DATES) == snapshot


# ---- the file that pytest-benchmark reads. The golden one was written by pytest-benchmark 5.3.1 itself --------------

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "pytest-benchmark-5.3.1.json").read_text("utf-8"))


@pytest.mark.parametrize("theirs", [b["stats"] for b in GOLDEN["benchmarks"]], ids=lambda s: f"{s['rounds']} rounds")
def test_statistics_are_those_that_pytest_benchmark_computes(theirs: dict[str, Any]) -> None:
    ours = stats(theirs["data"])

    assert ours.keys() == theirs.keys() - {"data", "iterations"}
    assert ours.pop("outliers") == theirs["outliers"]
    assert ours == pytest.approx({name: theirs[name] for name in ours}, rel=1e-12)


def test_the_keys_are_those_of_pytest_benchmark() -> None:
    found = document("pytest-benchmark")
    theirs = GOLDEN["benchmarks"][0]

    assert found.keys() == GOLDEN.keys()
    for benchmark in found["benchmarks"]:
        assert benchmark.keys() == theirs.keys()
        assert benchmark["stats"].keys() == theirs["stats"].keys()
        assert benchmark["options"].keys() <= theirs["options"].keys()


def test_a_fingerprint_that_one_row_was_asked_for_changes_nothing() -> None:
    rows = [replace(row, environment=replace(row.environment)) for row in (FULL, BARE)]
    assert rows[0].environment.fingerprint

    found = common_environment(rows)

    assert found == common_environment(rows[::-1])
    assert "fingerprint" not in found


def test_every_reading_parameters_and_what_the_format_has_no_key_for_are_there(snapshot: Any) -> None:
    """A file of rows of two commits is of no commit; a failed case has no row."""
    assert document("pytest-benchmark", (FULL, BARE, FAILED)) == snapshot
    assert document("pytest-benchmark", (FULL,))["commit_info"]["id"] == FULL.environment.commit


def test_pytest_benchmark_itself_compares_two_files(tmp_path: Path) -> None:
    pytest.importorskip(
        "pytest_benchmark", reason="pytest-benchmark is not installed here; docs/how-to/exports.md: done by hand"
    )
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(text("pytest-benchmark"))

    command = [sys.executable, "-m", "pytest_benchmark", "compare", "a.json", "b.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)

    assert done.stdout.count("fft[n=256, dtype=f32] #new") == 2
