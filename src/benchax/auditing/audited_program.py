"""`benchax audit -- python train.py`: a program runs once, as it stands, and the rules look at what was seen of it.

The program keeps its output and its exit code (`hooks/command.py`); `recording.py` notes inside of it what it
compiles, calls and transfers. Rules that need one function are asked about those of its functions that took longest to
compile (`read_evidence.py`). Of a program of several processes each is looked at, and a finding says which it is about.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from benchax.auditing import audit as audits
from benchax.auditing import function_audits
from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.recording import HOOK
from benchax.auditing.rule import Rule
from benchax.hooks.command import EndedCommand, Report, run
from benchax.model import Environment, Remark, Severity
from benchax.progress import Listener, quiet
from benchax.results.audit import Audit, Checked, Finding
from benchax.results.cache import CachedProgram, CacheUse, Folder
from benchax.results.transfers import ObservedTransfer, Transfers
from benchax.results.watch import Compile, FunctionCount, Reason, Watch
from benchax.units import seconds

CALLS_S = 20.0
"""For so long calls and transfers are counted, which slows calls down."""


@dataclass(frozen=True)
class Audited:
    """What was found, and how the program ended."""

    audit: Audit
    ended: EndedCommand


def audit_program(
    command: Sequence[str],
    rules: Sequence[str] | None = None,
    *,
    limit_s: float | None = None,
    calls_s: float = CALLS_S,
    report: Listener = quiet,
    on_wait: Callable[[float], None] | None = None,
) -> Audited:
    """Runs `command` once, to its end, and audits it.

    Args:
        rules: ids of those to be asked; default: all.
        limit_s: the program is ended after this time.
        calls_s: how long calls and transfers are counted, in seconds from the first call.
        report: told what is done once the program has ended; before, the terminal is the program's.
        on_wait: told once in a second how long it runs.

    Raises:
        UsageError: a rule that does not exist, or no such program.
    """
    asked = audits.choose_rules(rules)
    ended = run(command, HOOK, {"calls_s": calls_s, "rules": list(asked)}, limit_s=limit_s, on_wait=on_wait)
    found = [_of_process(each, asked, report) for each in ended.reports]
    joined = _join(found, ended.reports) if found else _nothing_seen(asked, ended)
    remarks = (*joined.remarks, *_remarks(ended), *audits.packs_off(rules))
    elapsed_s = ended.elapsed_s + joined.elapsed_s
    return Audited(replace(joined, name=shlex.join(command), remarks=remarks, elapsed_s=elapsed_s), ended)


def _of_process(process: Report, asked: Mapping[str, Rule], report: Listener) -> Audit:
    found = audits.run_rules(evidence_of(process), asked, shlex.join(process.argv), report=report)
    found = replace(found, environment=_environment(process.result["environment"]))
    return function_audits.join_audits(found, process.result["read"])


def evidence_of(report: Report) -> ProgramEvidence:
    """What the hook left in one process."""
    found = report.result
    return ProgramEvidence(
        shlex.join(report.argv),
        _watch(found["watch"]),
        _transfers(found["transfers"]),
        _cache(found["cache"]),
        found["facts"] | {"wall_s": report.wall_s},
    )


# ---- several processes ------------------------------------------------------------------------------------------


def _join(found: Sequence[Audit], reports: Sequence[Report]) -> Audit:
    if len(found) == 1:
        return found[0]
    named = list(zip(found, reports, strict=True))
    return replace(
        found[0],
        findings=tuple(_with_name(finding, report) for audit, report in named for finding in audit.findings),
        checked=tuple(_best(answers) for answers in zip(*(audit.checked for audit in found), strict=True)),
        suppressed=tuple(dict.fromkeys(one for audit in found for one in audit.suppressed)),
        remarks=tuple(dict.fromkeys(remark for audit in found for remark in audit.remarks)),
        elapsed_s=sum(audit.elapsed_s for audit in found),
    )


def _with_name(finding: Finding, report: Report) -> Finding:
    return replace(finding, seen=(*finding.seen, f"in process {report.pid}: {shlex.join(report.argv)}"))


def _best(answers: Iterable[Checked]) -> Checked:
    return min(answers, key=lambda checked: function_audits.RANKS.index(checked.outcome))


# ---- what was seen, and what was not ----------------------------------------------------------------------------


def _nothing_seen(asked: Mapping[str, Rule], ended: EndedCommand) -> Audit:
    why = "; ".join(ended.remarks) or "no process left a report"
    return Audit("", checked=tuple(Checked(rule.id, rule.title, "not checked", why) for rule in asked.values()))


def _remarks(ended: EndedCommand) -> Iterable[Remark]:
    severity: Severity = "warning" if ended.is_timed_out or ended.exit_code else "info"
    yield Remark("ran-once", severity, f"The program ran once, unchanged, {_end(ended)}.")
    for report in ended.reports:
        seen_s = report.result["facts"]["calls"]["seen_s"]
        yield Remark(
            "calls-window",
            "info",
            f"Calls and transfers were counted for {seconds(seen_s)} from the first call on, and a call takes longer "
            f"meanwhile; programs and the cache to the end{_of(report, ended)}.",
        )
    yield from (Remark("process", "warning", text) for text in ended.remarks)


def _end(ended: EndedCommand) -> str:
    if ended.is_timed_out:
        return f"and was ended when its time was up, after {seconds(ended.elapsed_s)}: what it does later was not seen"
    return f"and ended with {ended.exit_code} after {seconds(ended.elapsed_s)}"


def _of(report: Report, ended: EndedCommand) -> str:
    return f" of process {report.pid}, one of {len(ended.reports)}" if len(ended.reports) > 1 else ""


# ---- from JSON --------------------------------------------------------------------------------------------------


def _watch(found: Mapping[str, Any]) -> Watch:
    functions = [FunctionCount(**f) for f in found["functions"]]
    compiles = [
        Compile(**_drop_derived(Compile, c), reasons=tuple(Reason(**r) for r in c["reasons"]))
        for c in found["compiles"]
    ]
    return Watch(
        found["threads"],
        compiles,
        {(f.function, f.defined, f.is_eager): f for f in functions},
        found["cache_hits"],
        found["cache_writes"],
        found["cache_dir"],
        found["wall_s"],
        found["lost_events"],
        _read_remarks(found),
    )


def _drop_derived(type_: type[Compile], found: Mapping[str, Any]) -> dict[str, Any]:
    """Without what is derived, and without the reasons."""
    return {field.name: found[field.name] for field in fields(type_) if field.name != "reasons"}


def _transfers(found: Mapping[str, Any]) -> Transfers:
    transfers = Transfers(sees=tuple(found["sees"]), remarks=_read_remarks(found))
    for one in found["transfers"]:
        transfers.add(ObservedTransfer(**one))
    return transfers


def _cache(found: Mapping[str, Any]) -> CacheUse:
    own = {field.name: found[field.name] for field in fields(CacheUse)}
    own["programs"] = [CachedProgram(**program) for program in found["programs"]]
    own |= {name: Folder(**found[name]) if found[name] else None for name in ("before", "after")}
    return CacheUse(**own)


def _environment(found: Mapping[str, Any] | None) -> Environment | None:
    if found is None:
        return None
    affinity = found["affinity"]
    return Environment(**{**found, "affinity": None if affinity is None else tuple(affinity)})


def _read_remarks(found: Mapping[str, Any]) -> list[Remark]:
    return [Remark(**remark) for remark in found["remarks"]]
