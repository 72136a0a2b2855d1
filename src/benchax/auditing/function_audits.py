"""What rules say of the functions of a program: asked inside of its process when it has ended, joined outside.

The functions are read, not called (`read_evidence.py`); most of them are not even compiled again
(`traced_evidence.py`).
"""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchax.auditing import audit as audits
from benchax.auditing.read_evidence import ReadEvidence
from benchax.auditing.recorded_functions import RecordedFunction
from benchax.auditing.rule import list_some
from benchax.auditing.rules import rules as every_rule
from benchax.auditing.traced_evidence import TracedEvidence
from benchax.errors import BenchaxError
from benchax.model import Remark
from benchax.results.audit import Audit, Checked, Finding, Outcome, Suppressed
from benchax.source_files import owner_of, without_folders
from benchax.units import seconds

READ_S = 20.0
"""Compiling functions once more may take about so long together."""
LONGEST = 120
"""Characters of a signature that are shown: one of a model has thousands."""
MOST_BUILT = 3
"""Functions that are compiled once more."""
BUILDS = 2
"""As it is, and with its arguments donated."""
RANKS: Sequence[Outcome] = ("finding", "not checked", "fine", "not applicable")
"""The first of these among several answers is the answer of all: what was not seen of one is not called fine."""


def read(functions: Sequence[RecordedFunction], rules: Sequence[str]) -> dict[str, Any]:
    """In the program's process: the answers of each function, and what was not looked at, in plain data.

    The `MOST_BUILT` that took longest to compile are compiled once more, where that does not take too long. Of all
    others, rules are asked that need no more than the trace.
    """
    asked, found, left = audits.choose_rules(rules), list[dict[str, Any]](), list[str]()
    rest_s = READ_S
    for i, one in enumerate(functions):
        need_s = BUILDS * one.compile_s
        why = one.why_not or (f"compiling it again takes {seconds(one.compile_s, 2)}" if need_s > rest_s else "")
        is_built = i < MOST_BUILT and not why
        rest_s -= need_s if is_built else 0.0
        try:
            with _silence():
                found.append(_audit(one, asked).asdict() | {"is_built": True} if is_built else _look(one, asked))
        except BenchaxError as error:
            why = error.problem
        if why and i < MOST_BUILT:
            left.append(f"{one.place.name}: {why}")
    return {"functions": found, "left": left}


def look(functions: Sequence[RecordedFunction], rules: Sequence[str]) -> dict[str, Any]:
    """The same of a program that failed or was ended: nothing is traced or compiled again."""
    asked = audits.choose_rules(rules)
    with _silence():
        return {"functions": [_look(one, asked) for one in functions], "left": []}


def _look(one: RecordedFunction, asked: Mapping[str, Any]) -> dict[str, Any]:
    evidence = TracedEvidence(one)
    rules = {id: rule for id, rule in asked.items() if rule.needs_trace_only}
    signature = "" if one.jaxpr is None else evidence.signature
    found = audits.run_rules(evidence, rules, one.place.name, signature, folder=Path.cwd())
    return found.asdict() | {"is_built": False}


def _audit(one: RecordedFunction, asked: Mapping[str, Any]) -> Audit:
    evidence = ReadEvidence(
        one.case,
        held_arguments=one.held_arguments,
        repeated_inputs=one.repeated,
        carried=one.carried,
        wide_lines=one.wide_lines,
        called_at=one.called_at,
        data=one.inputs,
        input_names=one.input_names,
        nan_at=one.nan_at,
        compile_s=one.compile_s,
        closed_jaxpr=one.jaxpr,
        user=one.user,
    )
    return audits.run_rules(evidence, asked, one.place.name, evidence.inputs.signature, folder=Path.cwd())


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    """What a function prints while it is traced was printed when the program traced it."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        yield


# ---- in the process that audits ---------------------------------------------------------------------------------


def join_audits(audit: Audit, told: Mapping[str, Any] | None) -> Audit:
    """The audit of a program with those of its functions: rules that have no answer for a program have theirs.

    Args:
        told: what `read` gave, through JSON, and its "elapsed_s"; None: the program failed or was ended, and nothing
            was read.
    """
    if told is None:
        return audit
    known = every_rule()
    # Some ask about what a program does and about each of its functions, as of random keys.
    open_rules = {c.rule for c in audit.checked if c.outcome == "not applicable" or known[c.rule].needs_trace_only}
    answers = {c.rule: _answer(c, told["functions"]) for c in audit.checked if c.rule in open_rules}
    found = _join(f for one in told["functions"] for f in _findings(one) if f.rule in open_rules)
    return replace(
        audit,
        findings=tuple(sorted((*audit.findings, *found), key=audits.rank)),
        checked=tuple(answers.get(checked.rule) or checked for checked in audit.checked),
        suppressed=(*audit.suppressed, *(s for one in told["functions"] for s in _read_suppressed(one))),
        remarks=(*audit.remarks, *_remarks(told)),
    )


def _join(findings: Iterable[Finding]) -> list[Finding]:
    """Of infos of one rule the first, whose function took longest to compile, and a line for each of the others: what
    is no more than worth knowing is not told function by function, nor of a package's own functions. Of other findings
    so those of one line, which several functions run through."""
    groups: dict[Any, list[Finding]] = {}
    for i, finding in enumerate(findings):
        if finding.severity == "info" and finding.where and owner_of(finding.where[0]) == "package":
            continue
        line = None if finding.severity == "info" else finding.where or i
        groups.setdefault((finding.rule, line), []).append(finding)
    return [_with_others(first, others) for first, *others in groups.values()]


def _with_others(first: Finding, others: Sequence[Finding]) -> Finding:
    """One finding for all of them."""
    if first.severity == "info":
        told = [f"also {without_folders(_line_of(each))}: {each.title}" for each in others]
    else:
        lines = dict.fromkeys(line for each in others for line in (each.title, each.seen[0], each.seen[-1]))
        told = [f"also {line}" for line in lines if line not in (first.title, *first.seen)]
    return replace(first, seen=(*first.seen, *list_some(told, what="functions")))


def _line_of(finding: Finding) -> str:
    return f"{finding.where[0]}:{finding.where[1]}" if finding.where else "elsewhere"


def _answer(of_program: Checked, functions: Sequence[Mapping[str, Any]]) -> Checked:
    rule = of_program.rule
    of_all = [Checked(**checked) for one in functions for checked in one["checked"] if checked["rule"] == rule]
    answers = of_all if of_program.outcome == "not applicable" and of_all else [of_program, *of_all]
    return min(answers, key=lambda checked: RANKS.index(checked.outcome))


def _findings(function: Mapping[str, Any]) -> list[Finding]:
    signature = function["signature"]
    shown = signature if len(signature) <= LONGEST else f"{signature[:LONGEST]}…"
    of = f"of {function['name']}({shown}), as the program called it"
    return [_finding(one, of) for one in function["findings"]]


def _finding(told: Mapping[str, Any], of: str) -> Finding:
    where = told["where"] and (told["where"][0], told["where"][1])
    return Finding(**{**told, "seen": (*told["seen"], of), "where": where})


def _read_suppressed(function: Mapping[str, Any]) -> list[Suppressed]:
    return [
        Suppressed(_finding(one["finding"], f"of {function['name']}"), one["reason"], one["by"])
        for one in function["suppressed"]
    ]


def _remarks(told: Mapping[str, Any]) -> Iterator[Remark]:
    names = [one["name"] for one in told["functions"] if one["is_built"]]
    if names:
        taken = seconds(told["elapsed_s"], 2)
        yield Remark(
            "read",
            "info",
            f"When the program had ended, {' and '.join(names)} {'was' if len(names) == 1 else 'were'} traced and "
            f"compiled once more, to look at, and not called ({taken}).",
        )
    yield from (Remark("not-read", "info", f"not looked at as a function: {text}") for text in told["left"])
