"""Operations that a program sends one at a time. Real programs are in tests/auditing/test_audited_program.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchax.auditing.audit import ask
from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.live_evidence import LiveEvidence
from benchax.auditing.rules.eager_operations import eager_operations
from benchax.case import make_case
from benchax.results.audit import Checked, Finding
from benchax.results.watch import Watch


def asked(**calls: Any) -> tuple[list[Finding], Checked]:
    seen = {"is_seen": True, "seen_s": 20.0, "jitted": 0, "eager": 0, "eager_lines": [], **calls}
    return ask(eager_operations, ProgramEvidence("python train.py", Watch("all"), facts={"calls": seen}))


def test_a_line_with_many_operations_is_a_warning() -> None:
    (finding,), _ = asked(jitted=10, eager=120, eager_lines=[("train.py:7", 110), ("train.py:3", 10)])

    assert finding.severity == "warning"
    assert finding.where == (str(Path("train.py").absolute()), 7)
    assert finding.seen[:2] == (
        "110 from train.py:7",
        "120 operations in the 20.0 s in which calls were counted, and calls of jitted functions: 10",
    )


def test_beside_as_many_calls_of_jitted_functions_it_is_an_info() -> None:
    (finding,), _ = asked(jitted=110, eager=110, eager_lines=[("train.py:7", 110)])

    assert finding.severity == "info"


def test_what_a_package_sends_from_one_call_is_fine_and_from_many_is_not() -> None:
    once, _ = asked(eager=120, eager_lines=[("train.py:7", 120)], eager_inside=[("train.py:7", 118)])
    often, _ = asked(eager=3000, eager_lines=[("train.py:7", 3000)], eager_inside=[("train.py:7", 3000)])

    assert (once, len(often)) == ([], 1)


def test_many_lines_with_a_few_operations_each_are_fine() -> None:
    findings, answer = asked(jitted=1, eager=500, eager_lines=[(f"model.py:{line}", 50) for line in range(10)])

    assert (findings, answer.outcome) == ([], "fine")


def test_a_line_that_cannot_be_seen_is_no_advice() -> None:
    findings, _ = asked(eager=500, eager_lines=[(None, 500)])

    assert findings == []


def test_a_jax_whose_calls_cannot_be_seen_is_not_called_fine() -> None:
    _, answer = asked(is_seen=False)

    assert (answer.outcome, answer.why) == ("not checked", "calls cannot be seen in this JAX")


def test_of_one_function_it_says_nothing() -> None:
    _, answer = ask(eager_operations, LiveEvidence(make_case(abs, (1.0,))))

    assert (answer.outcome, answer.why) == ("not applicable", "one function is audited, not a program")
