"""Which comparisons are too much, how limits are written, and how the program ends."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from refusals import refusal

from benchax.comparing.gate import (
    DEFAULT_EVENTS,
    ERROR,
    FINE,
    SLOWER,
    UNCLEAR,
    Gate,
    Limit,
    describe_alarm,
    gate_of,
    limit_of,
    limit_text,
    parse,
)
from benchax.errors import UsageError
from benchax.model import METRICS, CaseId, Comparison, Failure, Version


def compared(verdict: str = "slower", ratio: float = 1.1, *, metric: str = "run", case: str = "f") -> Comparison:
    found = Comparison(CaseId(case), "run", Version("old"), Version("new"), "slower", ratio=ratio)
    return replace(found, metric=metric, verdict=verdict, baseline_value=1e-3, candidate_value=1e-3 * ratio)


def in_bytes(before: float, after: float, metric: str = "peak") -> Comparison:
    verdict = "same" if before == after else "slower" if after > before else "faster"
    found = compared(verdict, 1.0, metric=metric)
    ratio = after / before if before else None
    return replace(found, method="counted", ratio=ratio, baseline_value=before, candidate_value=after)


FAILED = replace(compared("unclear"), failure=Failure("error", "build", "broken"), ratio=None)


# ---- how limits are written -------------------------------------------------------------------------------------


WRITTEN = {
    "run": ("5%", " 2.5 % ", ".5%", "20us", "5%+20us", "20 us + 5 %", "0", "0%"),
    "compile": ("100%", "20%+50ms"),
    "peak": ("0", 0, "64KiB", "5%+64KiB"),
    "constants": ("4096", 4096),
    "flops": ("1000", "1e6"),
}


def test_a_limit_is_a_share_an_amount_or_both(snapshot: Any) -> None:
    found = {f"{metric}: {text!r}": str(limit_of(text, metric)) for metric, texts in WRITTEN.items() for text in texts}  # type: ignore[arg-type]

    assert found == snapshot


NO_LIMITS = [
    "-3%", "abc", "5%%", "%", "5%+", "+5%", "nan", "inf", "-1ms", "1e999", "nan%", "--5%", "5%+6%", "", " ", "5% 3%",
    "5 parsecs",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_LIMITS)
@pytest.mark.parametrize("metric", METRICS)
def test_what_is_no_limit_is_refused_with_an_example(text: str, metric: str) -> None:
    with pytest.raises(UsageError) as error:
        limit_of(text, metric)  # type: ignore[arg-type]

    assert error.value.problem == f"invalid limit {text!r} for {metric}"
    assert "5%" in error.value.expected


@pytest.mark.parametrize("text", ["5", "0.5", "5.", ".5"])
def test_a_time_without_a_unit_is_asked_for_it(text: str) -> None:
    assert refusal(limit_of, text, "run") == (
        f"the limit '{text}' for run has no unit\nexpected 5%, 20us or 5%+20us\n\nhint: {text}% or {text}ms"
    )


def test_one_limit_is_of_run_times_and_others_are_named() -> None:
    several = {"run": Limit(0.05), "peak": Limit(None, 0.0), "compile": Limit(0.2, 0.05)}
    assert parse("run=5%,peak=0, compile = 20%+50ms") == several
    assert parse("5%,peak=1KiB") == {"run": Limit(0.05), "peak": Limit(None, 1024.0)}


def test_a_list_of_limits_that_cannot_be_read_is_refused(snapshot: Any) -> None:
    lists = ("run=", "=5%", "5%,", "run=5%=6%", "1ms+2ms", "compiled=5%")

    assert {text: refusal(parse, text) for text in lists} == snapshot


# ---- what exceeds a limit ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "before", "after", "is_exceeded"),
    [
        (Limit(0.05), 100, 105, False),
        (Limit(0.05), 100, 106, True),
        (Limit(0.0), 100, 100, False),
        (Limit(None, 0.0), 100, 100, False),
        (Limit(None, 0.0), 100, 100.1, True),
        (Limit(None, 0.0), 100, 99, False),
        (Limit(None, 10.0), 100, 110, False),
        (Limit(None, 10.0), 100, 111, True),
        (Limit(0.05, 10.0), 100, 108, False),  # above 5 %, not above 10
        (Limit(0.05, 10.0), 1000, 1020, False),  # above 10, not above 5 %
        (Limit(0.05, 10.0), 1000, 1060, True),
        (Limit(0.05), 0, 1, True),
        (Limit(0.05), 0, 0, False),
    ],
)
def test_both_parts_of_a_limit_must_be_exceeded(limit: Limit, before: float, after: float, is_exceeded: bool) -> None:
    assert limit.is_exceeded(before, after) is is_exceeded


def test_only_what_is_called_slower_is_an_alarm_times_by_their_ratio_and_counts_as_they_are() -> None:
    """Medians of two sides come from all blocks together; pairs know far better."""
    gate = Gate({"run": Limit(0.05), "peak": Limit(None, 0.0), "constants": Limit(None, 64.0)})
    by_ratio = replace(compared(ratio=1.2), candidate_value=1e-3)
    alarms = [compared("slower", 1.5), by_ratio, in_bytes(0, 8), in_bytes(0, 65, "constants")]
    others = [
        *(compared(verdict, 1.5) for verdict in ("faster", "same", "unclear")),
        compared(metric="compile", ratio=9.0),  # it has no limit
        replace(compared(ratio=1.04), candidate_value=2e-3),
        in_bytes(8, 8),
        in_bytes(9, 8),
        in_bytes(0, 64, "constants"),
    ]

    assert [c for c, _ in gate.alarms([*alarms, *others])] == alarms
    assert gate.alarms([by_ratio]) == [(by_ratio, Limit(0.05))]
    assert Gate().alarms(alarms) == []


def test_an_alarm_in_words() -> None:
    assert describe_alarm(compared(ratio=1.123), Limit(0.05)) == "run +12 % (limit 5 %)"
    assert describe_alarm(compared(ratio=1.123), Limit(0.05, 20e-6)) == "run +12 % (limit 5 % + 20.0 µs)"
    assert describe_alarm(in_bytes(1024, 2048), Limit(None, 0.0)) == "peak 1.00 KiB to 2.00 KiB (limit 0 B)"
    assert describe_alarm(in_bytes(0, 5, "flops"), Limit(0.025)) == "flops 0 FLOP to 5 FLOP (limit 2.5 %)"
    assert limit_text(Limit(0.05, 65536.0), "peak") == "5 % + 64.0 KiB"


# ---- how the program ends ---------------------------------------------------------------------------------------

STRICT = dict.fromkeys(DEFAULT_EVENTS, True)
LENIENT = dict.fromkeys(DEFAULT_EVENTS, False)
LIMITS = {"run": Limit(0.05)}


@pytest.mark.parametrize(
    ("found", "events", "code"),
    [
        ([compared("same")], STRICT, FINE),
        ([compared("faster", 0.5)], STRICT, FINE),
        ([compared("slower", 1.02)], STRICT, FINE),
        ([compared("slower", 1.1)], LENIENT, SLOWER),
        ([compared("unclear"), compared("same", case="g")], DEFAULT_EVENTS, FINE),
        ([compared("unclear"), compared("unclear", case="g")], DEFAULT_EVENTS, UNCLEAR),
        ([compared("unclear")], LENIENT, FINE),
        ([compared("unclear")], STRICT, UNCLEAR),
        ([FAILED], DEFAULT_EVENTS, ERROR),
        ([FAILED], LENIENT, FINE),
        ([FAILED, compared("slower", 1.1), compared("unclear")], STRICT, ERROR),
        ([FAILED, compared("slower", 1.1)], LENIENT, SLOWER),
        ([compared("unclear"), compared("slower", 1.1)], STRICT, SLOWER),
        ([compared("unclear", metric="compile"), compared("same")], STRICT, FINE),  # it has no limit
        ([], STRICT, FINE),
        ([FAILED, compared("same", case="g")], {**LENIENT, "unclear": True}, FINE),  # a failure is not unclear
    ],
)
def test_the_gravest_decides(found: list[Comparison], events: dict[str, bool], code: int) -> None:
    assert (FINE, SLOWER, ERROR, UNCLEAR) == (0, 1, 2, 3)
    assert Gate(LIMITS, events).exit_code(found) == code  # type: ignore[arg-type]


def test_a_limit_that_judged_no_case_is_unclear() -> None:
    """Whatever the reason: nothing was checked."""
    case = [CaseId("g")]
    gate = Gate(LIMITS, {**DEFAULT_EVENTS, "failed": False})
    of_others = Gate(cases=[("matmul", LIMITS)])

    assert gate.exit_code([FAILED]) == gate.exit_code([], new=case) == gate.exit_code([], missing=case) == UNCLEAR
    assert Gate().exit_code([compared("unclear")]) == FINE  # there is no limit
    assert Gate(events={**DEFAULT_EVENTS, "unclear": True}).exit_code([compared("unclear")]) == UNCLEAR
    assert of_others.exit_code([compared("unclear", case="fft")]) == FINE
    assert of_others.exit_code([compared("unclear", case="matmul")]) == UNCLEAR


def test_each_limit_has_to_judge_a_case() -> None:
    gate = Gate({"run": Limit(0.05), "peak": Limit(None, 0.0), "compile": Limit(0.2)})
    found = [compared("unclear"), in_bytes(8, 8), compared("same", metric="compile")]

    assert (gate.unjudged(found), gate.exit_code(found)) == (["run"], UNCLEAR)
    # A program that did not change has one comparison, which holds for all metrics.
    assert gate.unjudged([replace(compared("same"), method="same program")]) == []


@pytest.mark.parametrize(
    ("limit", "code"), [(Limit(0.001), UNCLEAR), (Limit(0.03), FINE), (Limit(None, 1e-6), UNCLEAR)]
)
def test_the_same_within_more_than_the_limit_is_not_judged(limit: Limit, code: int) -> None:
    found = replace(compared("same", 1.0), low=0.99, high=1.02)

    assert Gate({"run": limit}).exit_code([found]) == code


def test_new_and_missing_cases_fail_where_that_is_asked_for() -> None:
    case = [CaseId("g")]

    assert Gate(LIMITS).exit_code([compared("same")], new=case, missing=case) == FINE
    assert Gate(LIMITS, {**LENIENT, "new": True}).exit_code([], new=case) == SLOWER
    assert Gate(LIMITS, {**LENIENT, "missing": True}).exit_code([], missing=case) == SLOWER
    assert Gate(LIMITS, STRICT).exit_code([FAILED], missing=case) == ERROR


# ---- in pyproject.toml ------------------------------------------------------------------------------------------


def write(project: Path, text: str) -> Path:
    (project / "pyproject.toml").write_text(text, encoding="utf-8")
    return project


TABLE = """
[tool.benchax.gate]
run = "5%"
peak = "64KiB"
missing = "fail"
failed = "ignore"

[tool.benchax.gate.cases."matmul*"]
run = "10%"

[tool.benchax.gate.cases."matmul[n=8]"]
run = "20%+1ms"
compile = "50%"
"""


def test_the_file_says_limits_and_events_and_the_command_line_replaces_the_limits(project: Path) -> None:
    assert gate_of(None, project) == Gate()
    of_file = gate_of(None, write(project, TABLE))
    given = gate_of("run=7%", project, {"unclear": True})

    assert of_file.limits == {"run": Limit(0.05), "peak": Limit(None, 65536.0)}
    assert of_file.events == {"new": False, "missing": True, "failed": False, "differs": True, "unclear": None}
    assert (given.limits, given.cases, given.events) == (
        {"run": Limit(0.07)}, (), {**of_file.events, "unclear": True}
    )  # fmt: skip


def test_patterns_replace_limits_metric_by_metric_and_later_ones_win(project: Path) -> None:
    gate, peak = gate_of(None, write(project, TABLE)), {"peak": Limit(None, 65536.0)}

    assert gate.limits_of(CaseId("fft")) == {"run": Limit(0.05)} | peak
    assert gate.limits_of(CaseId("matmul", (("n", 16),))) == {"run": Limit(0.1)} | peak
    of_eight = {"run": Limit(0.2, 1e-3), "compile": Limit(0.5)}
    assert gate.limits_of(CaseId("matmul", (("n", 8),))) == of_eight | peak


def test_a_pattern_that_is_a_name_holds_for_all_its_parameters_and_unclear_may_be_ignored(project: Path) -> None:
    table = '[tool.benchax.gate]\nunclear = "ignore"\n[tool.benchax.gate.cases.fft]\nrun = "1%"'
    gate, of_file = gate_of("5%", write(project, table)), gate_of(None, project)

    assert gate.exit_code([compared("unclear")]) == FINE
    assert of_file.limits_of(CaseId("fft", (("n", 8),))) == {"run": Limit(0.01)}
    assert of_file.limits_of(CaseId("fft2")) == {}


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('[tool.benchax.gate]\nruns = "5%"', "unknown key 'runs'"),
        ('[tool.benchax.gate]\nrun = "5"', "the limit '5' for run has no unit"),
        ("[tool.benchax.gate]\nrun = 5", "the limit 5 for run has no unit"),
        ("[tool.benchax.gate]\nrun = true", "invalid limit True for run"),
        ("[tool.benchax.gate]\nrun = -0.5", "invalid limit -0.5 for run"),
        ('[tool.benchax.gate]\nmissing = "maybe"', "invalid value 'maybe' for missing"),
        ("[tool.benchax.gate]\nmissing = true", "invalid value True for missing"),
        ('[tool.benchax.gate.cases.f]\nspeed = "5%"', "unknown metric 'speed'"),
        ('[tool.benchax.gate.cases.f]\nnew = "fail"', "unknown metric 'new'"),
        ('[tool.benchax]\ngate = "5%"', "the gate is '5%'"),
        ('[tool.benchax.gate]\ncases = "5%"', "cases is '5%'"),
        ('[tool.benchax.gate.cases]\nf = "5%"', "cases.f is '5%'"),
    ],
)
def test_a_table_that_cannot_be_read_names_the_file(project: Path, table: str, said: str) -> None:
    for command_line in (None, "5%"):
        with pytest.raises(UsageError) as error:
            gate_of(command_line, write(project, table))

    assert error.value.problem == f"[tool.benchax.gate] of {project / 'pyproject.toml'}: {said}"
    assert error.value.expected
