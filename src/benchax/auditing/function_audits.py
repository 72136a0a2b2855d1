"""Audits a program that has ended, inside its process: the program, and each of its functions.

Functions are read, not called. The few that took longest to compile are compiled again. For all others,
rules get the trace that JAX made.
"""

from __future__ import annotations

import contextlib
import io
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

from benchax.auditing import audit as audits
from benchax.auditing.evidence import Can, Evidence, ProgramEvidence
from benchax.auditing.recorder.functions import RecordedFunction
from benchax.auditing.recorder.log import Log
from benchax.auditing.recorder.views import use_of
from benchax.auditing.rule import Rule, list_some
from benchax.auditing.rules import rules as every_rule
from benchax.errors import BenchaxError
from benchax.model import Remark
from benchax.results.audit import Audit, Checked, Finding, Outcome
from benchax.source_files import owner_of, without_folders
from benchax.units import seconds

READ_S = 20.0
"""The most seconds that compiling functions again can take, together."""
LONGEST = 120
"""Characters of a signature that are shown: the signature of a model has thousands."""
MOST_BUILT = 3
"""The number of functions that are compiled again."""
BUILDS = 2
"""As it is, and with its arguments donated."""
RANKS: Sequence[Outcome] = ("finding", "not checked", "fine", "not applicable")
"""The first of these among several answers is the answer of all: what was not seen of one function is not fine."""


def audit_run(
    evidence: ProgramEvidence,
    functions: Sequence[RecordedFunction],
    rules: Sequence[str],
    *,
    is_built: bool = True,
    is_read: bool = True,
) -> Audit:
    """The audit of a program and of its functions.

    Args:
        functions: those that were recorded, the longest to compile first.
        rules: ids to ask.
        is_built: may functions be compiled again?
        is_read: may functions be looked at, at all? Not if the program was ended from outside.
    """
    asked = audits.choose_rules(rules)
    with _silence():
        audit = audits.run_rules(evidence, asked, evidence.command)
    if not is_read:
        return audit
    begun = perf_counter()
    if functions and sys.stderr is not None and sys.stderr.isatty():
        # The program has ended, and its terminal would not say what is still being done.
        names = ", ".join(one.place.name for one in functions[:MOST_BUILT])
        sys.stderr.write(f"benchax audit: the program has ended; looking at {names}\n")
    found, left = _read(evidence.log, functions, asked, is_built)
    return _join_functions(audit, found, left, perf_counter() - begun)


def evidence_of(log: Log, one: RecordedFunction, can: Can) -> Evidence:
    """Everything that the log knows of one function of a program."""
    return Evidence(one.case, can=can, recorded=one, use=use_of(log, one.serial))


def _read(
    log: Log, functions: Sequence[RecordedFunction], asked: Mapping[str, Rule], is_built: bool
) -> tuple[list[tuple[Audit, Can]], list[str]]:
    """(the audit of each function, why some of the first were not compiled again)"""
    found, left, rest_s = list[tuple[Audit, Can]](), list[str](), READ_S
    for i, one in enumerate(functions):
        need_s = BUILDS * one.compile_s
        why = one.why_not or (f"compiling it again takes {seconds(one.compile_s, 2)}" if need_s > rest_s else "")
        can: Can = "compile" if is_built and i < MOST_BUILT and not why else "trace"
        rest_s -= need_s if can == "compile" else 0.0
        try:
            with _silence():
                found.append((_audit(evidence_of(log, one, can), one, asked), can))
        except BenchaxError as error:
            why = error.problem
        if why and i < MOST_BUILT and is_built:
            left.append(f"{one.place.name}: {why}")
    return found, left


def _audit(evidence: Evidence, one: RecordedFunction, asked: Mapping[str, Rule]) -> Audit:
    rules = {id: rule for id, rule in asked.items() if rule.needs_trace_only or evidence.can == "compile"}
    signature = "" if evidence.can == "trace" and one.jaxpr is None else evidence.signature
    return audits.run_rules(evidence, rules, one.place.name, signature, folder=Path.cwd())


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """Hides the output of a function during tracing: it was printed when the program traced the function."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


# ---- one audit of all -------------------------------------------------------------------------------------------


def _join_functions(
    audit: Audit, functions: Sequence[tuple[Audit, Can]], left: Sequence[str], elapsed_s: float
) -> Audit:
    """Rules that have no answer for the program have those of its functions."""
    audits_of = [one for one, _ in functions]
    known = every_rule()
    # Some ask about what a program does and about each of its functions, as key-reuse does.
    is_open = {c.rule for c in audit.checked if c.outcome == "not applicable" or known[c.rule].needs_trace_only}
    found = _join(f for one, _ in functions for f in _findings(one, one.findings) if f.rule in is_open)
    answers = {c.rule: _answer(c, audits_of) for c in audit.checked if c.rule in is_open}
    silent = (
        replace(s, finding=f) for one, _ in functions for s in one.suppressed for f in _findings(one, [s.finding])
    )
    return replace(
        audit,
        findings=tuple(sorted((*audit.findings, *found), key=audits.rank)),
        checked=tuple(answers.get(checked.rule) or checked for checked in audit.checked),
        suppressed=(*audit.suppressed, *silent),
        remarks=(*audit.remarks, *_remarks([one.name for one, can in functions if can == "compile"], left, elapsed_s)),
        elapsed_s=audit.elapsed_s + elapsed_s,
    )


def _join(findings: Iterable[Finding]) -> list[Finding]:
    """Joins findings. Each rule has one info, for the function that took longest to compile, with a line for each other
    function. A line that several functions run has one finding. A package's own functions get no infos."""
    groups: dict[Any, list[Finding]] = {}
    for i, finding in enumerate(findings):
        if finding.severity == "info" and finding.where and owner_of(finding.where[0]) == "package":
            continue
        line = None if finding.severity == "info" else finding.where or i
        groups.setdefault((finding.rule, line), []).append(finding)
    return [_with_others(first, others) for first, *others in groups.values()]


def _with_others(first: Finding, others: Sequence[Finding]) -> Finding:
    if first.severity == "info":
        told = [f"also {without_folders(_line_of(each))}: {each.title}" for each in others]
    else:
        lines = dict.fromkeys(line for each in others for line in (each.title, each.seen[0], each.seen[-1]))
        told = [f"also {line}" for line in lines if line not in (first.title, *first.seen)]
    return replace(first, seen=(*first.seen, *list_some(told, what="functions")))


def _line_of(finding: Finding) -> str:
    return f"{finding.where[0]}:{finding.where[1]}" if finding.where else "elsewhere"


def _answer(of_program: Checked, functions: Sequence[Audit]) -> Checked:
    of_all = [checked for one in functions for checked in one.checked if checked.rule == of_program.rule]
    answers = of_all if of_program.outcome == "not applicable" and of_all else [of_program, *of_all]
    return min(answers, key=lambda checked: RANKS.index(checked.outcome))


def _findings(function: Audit, findings: Iterable[Finding]) -> list[Finding]:
    shown = function.signature
    shown = shown if len(shown) <= LONGEST else f"{shown[:LONGEST]}…"
    of = f"of {function.name}({shown}), as the program called it"
    return [replace(one, seen=(*one.seen, of)) for one in findings]


def _remarks(built: Sequence[str], left: Iterable[str], elapsed_s: float) -> Iterator[Remark]:
    if built:
        text = (
            f"When the program had ended, {' and '.join(built)} {'was' if len(built) == 1 else 'were'} traced and "
            f"compiled once more, to look at, and not called ({seconds(elapsed_s, 2)})."
        )
        yield Remark("read", "info", text)
    yield from (Remark("not-read", "info", f"not looked at as a function: {text}") for text in left)
