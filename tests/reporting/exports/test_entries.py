"""Which numbers of a case may leave the house, and under which name."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measurement_strategies import HOST, RICH, measured

from benchax.errors import UsageError
from benchax.model import Absent, CaseId, Cost, Failure, Measurement, Opaque, Samples, Stages
from benchax.reporting.exports import ExportedCase, common_environment, entries, plain


def entry(m: Measurement, timer: str | None = None) -> ExportedCase:
    (found,) = entries([m], timer=timer)
    return found


def with_samples(*samples: Samples) -> Measurement:
    return replace(measured(), samples=samples)


def test_the_headline_is_told_of_where_no_timer_is_named() -> None:
    m = with_samples(Samples("wall", 1, (3.0,)), Samples("loop", 2, (4.0,)))

    found = [entry(m).summary, entry(m, "loop").summary]

    assert [s.median_s for s in found if s] == [3.0, 2.0]


def test_a_timer_that_no_case_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no case was timed by 'lop'\nexpected 'loop'\? Permitted is one of: loop"):
        entries([with_samples(Samples("wall", 1, (3.0,)), Samples("loop", 2, (4.0,)))], timer="lop")


def test_a_case_without_the_timer_says_so() -> None:
    found = entries([measured("f"), with_samples(Samples("loop", 1, (1.0,)))], timer="loop")

    assert [e.why for e in found] == ["it was not timed by loop", ""]


def test_the_reason_of_the_row_is_given() -> None:
    m = replace(measured(), samples=(), not_measured=(Absent("samples.in_graph", "it has callbacks"),))

    assert entry(m).detail == "not measured, because it has callbacks"


def test_a_failed_case_has_no_number_even_where_readings_were_taken() -> None:
    found = entry(RICH)

    assert RICH.samples
    assert (found.samples, found.compile_s, found.counted) == (None, None, {})
    assert found.why == "it ended with wrong output in verify: off by 0.1"


@pytest.mark.parametrize(
    ("samples", "why"),
    [
        (Samples("wall", 1, (1.0, float("nan"))), "the readings of wall are no times"),
        (Samples("wall", 1, (1.0, 1e300)), "the readings of wall are no times"),
        (Samples("wall", 0, (1.0,)), "the readings of wall are no times"),
        (Samples("wall", 1, (5e-324,)), "the readings of wall are not above the clock's own cost"),
        (Samples("wall", 1, (0.0, 0.0)), "the readings of wall are not above the clock's own cost"),
        (Samples("wall", 1, (1.0,), overhead_s=2.0), "the readings of wall are not above the clock's own cost"),
        (Samples("wall", 1, ()), "it was not timed by any timer"),
    ],
)
def test_readings_that_are_no_times_are_none(samples: Samples, why: str) -> None:
    found = entry(with_samples(samples))

    assert (found.samples, found.summary, found.why) == (None, None, why)


@pytest.mark.parametrize(
    "other",
    [
        Samples("wall", 1, (), process=1),
        Samples("wall", 0, (1.0,), process=1),
        Samples("wall", 1, (float("inf"),), process=1),
    ],
)
def test_one_process_without_times_leaves_the_case_without_any(other: Samples) -> None:
    """A summary is over all of them: an export crashed, or wrote an infinity."""
    found = entry(with_samples(Samples("wall", 1, (1.0,) * 9), other))

    assert (found.samples, found.summary) == (None, None)
    assert found.why == "the readings of wall are no times"


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


def test_a_failure_is_shorter_than_its_traceback() -> None:
    m = replace(measured(), failure=Failure("timeout", "compile", "over 3 s", traceback="a\nb"))

    assert entry(m).detail == "not measured, because it ended with timeout in compile: over 3 s"
