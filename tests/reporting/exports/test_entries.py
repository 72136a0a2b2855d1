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

    assert [s.median_s for s in (entry(m).summary, entry(m, "loop").summary) if s] == [3.0, 2.0]
    assert [e.why for e in entries([measured("f"), m], timer="loop")] == ["it was not timed by loop", ""]


def test_a_timer_that_no_case_has_is_refused_with_those_there_are() -> None:
    with pytest.raises(UsageError, match=r"no case was timed by 'lop'\nexpected 'loop'\? Permitted is one of: loop"):
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


NO_TIMES, NO_COST = "the readings of wall are no times", "the readings of wall are not above the clock's own cost"
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
