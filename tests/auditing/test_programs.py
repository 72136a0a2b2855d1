"""Every program of the corpus: rules find what is marked in the bad ones, and nothing in the good ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from auditing import corpus
from auditing.corpus import Auditor, Program
from jax_versions import shows_calls

from benchax.auditing.rules import rules


def those(programs: list[Program]) -> pytest.MarkDecorator:
    marks = {program.name: [shows_calls] * program.is_run for program in programs}
    return pytest.mark.parametrize("program", [pytest.param(p, id=p.name, marks=marks[p.name]) for p in programs])


@pytest.fixture(scope="module")
def audited() -> Iterator[Auditor]:
    with corpus.auditor() as audit:

        def unless_missing(program: Program, asked: object) -> corpus.Audits:
            if program.missing:
                pytest.skip(f"{', '.join(program.missing)} is not installed")
            return audit(program, asked)

        yield unless_missing


PROGRAMS = corpus.programs()
pytestmark = pytest.mark.slow


@those([program for program in PROGRAMS if program.is_bad])
def test_each_marked_line_of_a_bad_program_is_named(program: Program, audited: Auditor) -> None:
    marked = {(rule, line) for rule, line, _ in program.marks}
    assert marked

    audits = audited(program, sorted({program.rule, *(rule for rule, _ in marked)}))

    assert marked <= {one for audit in audits.values() for one in program.named(audit)}, audits
    own = {(f.rule, f.where[1], f.severity) for audit in audits.values() for f in audit.findings if f.where}
    assert {mark for mark in program.marks if mark[2]} <= own
    if not program.is_run:  # each function has the pitfall, and no line is named that is not marked
        assert all(audit.findings for audit in audits.values()), audits
        assert {(rule, line) for rule, line, _ in own} == marked


@those([program for program in PROGRAMS if not program.is_bad and program.rule != corpus.CLEAN])
def test_a_good_program_has_no_finding_of_its_rule(program: Program, audited: Auditor) -> None:
    for name, audit in audited(program, [program.rule]).items():
        assert not audit.findings, (name, audit.findings)
        assert program.is_run or audit.checked[0].outcome in program.answers, (name, audit.checked)


@those([program for program in PROGRAMS if program.rule == corpus.CLEAN])
def test_a_clean_program_has_no_warning_of_any_rule(program: Program, audited: Auditor) -> None:
    asked = [rule.id for rule in rules().values() if not rule.pack]  # as users ask without --rules

    for audit in audited(program, asked).values():
        assert not audit.reaches("warning"), audit.findings
