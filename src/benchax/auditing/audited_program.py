"""`benchax audit -- python train.py`: runs a program once, unchanged, and audits it.

The program keeps its output and its exit code (`hooks/command.py`). Each of its processes audits itself when it ends
(`recording.py`); if there are several, a finding says which one it is about.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from benchax.auditing import audit as audits
from benchax.auditing.audit import best_answer
from benchax.auditing.recording import HOOK
from benchax.auditing.rule import Rule
from benchax.hooks.command import EndedCommand, Report, run
from benchax.json_values import decode_value
from benchax.model import Environment, Remark, Severity
from benchax.results.audit import Audit, Checked
from benchax.units import seconds

CALLS_S = 20.0
"""For how long calls and transfers are watched, which slows calls down."""


@dataclass(frozen=True)
class Audited:
    """The findings, and how the program ended."""

    audit: Audit
    ended: EndedCommand


def audit_program(
    command: Sequence[str],
    rules: Sequence[str] | None = None,
    *,
    limit_s: float | None = None,
    calls_s: float = CALLS_S,
    on_wait: Callable[[float], None] | None = None,
) -> Audited:
    """Runs `command` once, to its end, and audits it.

    Args:
        rules: ids of those to ask; default: all.
        limit_s: the program is ended after this time.
        calls_s: for how long calls and transfers are watched, in seconds from the first call.
        on_wait: called once a second with the seconds that the program has run.

    Raises:
        UsageError: a rule that does not exist, or no such program.
    """
    asked = audits.choose_rules(rules)
    ended = run(command, HOOK, {"calls_s": calls_s, "rules": list(asked)}, limit_s=limit_s, on_wait=on_wait)
    found = [_of_process(each) for each in ended.reports]
    joined = _join(found, ended.reports) if found else _nothing_seen(asked, ended)
    remarks = (*joined.remarks, *_remarks(ended), *audits.packs_off(rules))
    return Audited(replace(joined, name=shlex.join(command), remarks=remarks, elapsed_s=ended.elapsed_s), ended)


def _of_process(process: Report) -> Audit:
    found = decode_value(process.result["audit"], Audit)
    environment = decode_value(process.result["environment"], Environment | None)
    return replace(found, name=shlex.join(process.argv), environment=environment)


def _join(found: Sequence[Audit], reports: Sequence[Report]) -> Audit:
    if len(found) == 1:
        return found[0]
    named = [(one, f"in process {by.pid}: {shlex.join(by.argv)}") for one, by in zip(found, reports, strict=True)]
    return replace(
        found[0],
        findings=tuple(replace(f, seen=(*f.seen, process)) for audit, process in named for f in audit.findings),
        checked=tuple(best_answer(answers) for answers in zip(*(audit.checked for audit in found), strict=True)),
        suppressed=tuple(dict.fromkeys(one for audit in found for one in audit.suppressed)),
        remarks=tuple(dict.fromkeys(remark for audit in found for remark in audit.remarks)),
    )


def _nothing_seen(asked: Mapping[str, Rule], ended: EndedCommand) -> Audit:
    why = "; ".join(ended.remarks) or "no process left a report"
    return Audit("", checked=tuple(Checked(rule.id, rule.title, "not checked", why) for rule in asked.values()))


def _remarks(ended: EndedCommand) -> Iterable[Remark]:
    severity: Severity = "warning" if ended.is_timed_out or ended.exit_code else "info"
    yield Remark("ran-once", severity, f"The program ran once, unchanged, {_end(ended)}.")
    for report in ended.reports:
        of = f" of process {report.pid}, one of {len(ended.reports)}" if len(ended.reports) > 1 else ""
        yield Remark(
            "calls-window",
            "info",
            f"Calls and transfers were watched for {seconds(report.result['seen_s'])} from the first call on{of}, "
            "during which calls take longer. Compilations and the cache were watched to the end.",
        )
    yield from (Remark("process", "warning", text) for text in ended.remarks)


def _end(ended: EndedCommand) -> str:
    if ended.is_timed_out:
        return f"and was ended when its time was up, after {seconds(ended.elapsed_s)}: what it does later was not seen"
    return f"and ended with {ended.exit_code} after {seconds(ended.elapsed_s)}"
