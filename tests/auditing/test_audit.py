"""What an audit does with rules: with made-up ones, so that each test is about one thing."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import benchax
from benchax.auditing import audit as audits
from benchax.auditing.audit import ask, run_rules
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Match, NotApplicable, Rule, rule
from benchax.case import make_case
from benchax.errors import NotMeasured, UsageError
from benchax.progress import ProgressEvent


def double(x):
    return x * 2


def made(check: Callable[[Evidence], Iterable[Match]] | None = None, id: str = "made", **more: Any) -> Rule:
    """A rule that does what it is told; where it is told nothing, it finds something."""

    def finds(e: Evidence) -> Iterable[Match]:
        yield Match("it is", ["seen"], "do")

    return rule(id, "is it made?", more.get("severity", "warning"))(check or finds)


def evidence() -> Evidence:
    return Evidence(make_case(double, (jnp.arange(3.0),)))


def raises(error: Exception) -> Rule:
    def check(e: Evidence) -> Iterable[Match]:
        raise error

    return made(check)


@pytest.mark.parametrize(
    ("asked", "outcome", "why"),
    [
        (made(lambda e: ()), "fine", ""),
        (made(), "finding", ""),
        (raises(NotApplicable("it is Tuesday")), "not applicable", "it is Tuesday"),
        (raises(NotMeasured("the clock stopped")), "not checked", "the clock stopped"),
    ],
)
def test_each_end_of_a_rule_is_an_outcome_with_its_reason(asked: Rule, outcome: str, why: str) -> None:
    _, checked = ask(asked, evidence())

    assert (checked.outcome, checked.why) == (outcome, why)


def test_a_rule_that_fails_is_a_line_and_the_others_go_on() -> None:
    asked = {"broken": raises(ZeroDivisionError("0/0")), "made": made()}

    result = run_rules(evidence(), asked, "double")

    assert [c.outcome for c in result.checked] == ["not checked", "finding"]
    assert "the rule failed: ZeroDivisionError: 0/0" in result.checked[0].why
    assert "test_audit.py:" in result.checked[0].why


def test_what_a_rule_found_before_it_failed_is_kept() -> None:
    def check(e: Evidence) -> Iterable[Match]:
        yield from made().find(e)
        raise NotMeasured("no time")

    findings, checked = ask(made(check), evidence())

    assert [f.title for f in findings] == ["it is"]
    assert (checked.outcome, checked.why) == ("finding", "no time")


def test_the_gravest_findings_come_first() -> None:
    asked = {s: made(id=s, severity=s) for s in ("info", "error", "warning")}

    result = run_rules(evidence(), asked, "double")

    assert [f.severity for f in result.findings] == ["error", "warning", "info"]
    assert result.reaches("error")


def test_time_is_spent_on_grave_rules_first(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"a": made(id="a", severity="info"), "b": made(id="b", severity="error")}
    monkeypatch.setattr(audits, "every_rule", lambda: known)

    assert list(audits.choose_rules(None)) == ["b", "a"]


def test_progress_is_told_rule_by_rule_and_what_takes_time() -> None:
    told: list[ProgressEvent] = []
    asked = {"one": made(lambda e: [e.failure][1:], "one"), "two": made(id="two")}

    run_rules(evidence(), asked, "double", report=told.append)

    one, two = "one · double", "two · double"
    assert told == [
        ProgressEvent(one, total=2),
        ProgressEvent(one, "tracing and compiling", total=2),
        ProgressEvent(two, done=1, total=2),
    ]


def test_an_interrupt_that_compiled_code_makes_an_error_of_ends_the_audit() -> None:
    def check(e: Evidence) -> Iterable[Match]:
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ValueError("CpuCallback error: KeyboardInterrupt") from None
        return ()

    with pytest.raises(KeyboardInterrupt):
        run_rules(evidence(), {"made": made(check)}, "double")

    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_rule_that_does_not_exist_is_an_error_before_anything_runs() -> None:
    def never(x):
        raise AssertionError

    with pytest.raises(UsageError, match="there is no rule 'not-jited'\nexpected 'not-jitted'"):
        benchax.audit(never, 1.0, rules=["not-jited"])


def test_inputs_that_cannot_be_read_are_an_error_and_no_finding() -> None:
    with pytest.raises(UsageError, match="f33"):
        benchax.audit(double, "f33[8]", rules=["captured-constants"])


def test_an_audit_says_what_was_done_with_the_function() -> None:
    result = benchax.audit(double, jnp.arange(3.0), rules=["captured-constants"])

    (remark,) = result.remarks
    assert remark.message == (
        "To find this out, the function was tried in a worker process (compiled), traced, compiled."
    )


def test_a_project_that_silences_a_rule_can_still_be_measured(project: Path) -> None:
    """The table of audits is no option of a measurement."""
    (project / "pyproject.toml").write_text('[tool.benchax.audit]\nignore = { "made" = "is made on purpose" }')

    result = run_rules(evidence(), {"made": made()}, "double")
    benchax.bench(double, 1.0, max_time_s=0.01, store="off")

    assert [s.reason for s in result.suppressed] == ["is made on purpose"]
    assert "made" not in {f.rule for f in result.findings}
