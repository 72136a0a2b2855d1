"""An audit in words: each finding with what was seen, what it gains and what to do; then what else was looked at.

If nothing was found, the audit reports how many rules looked. Only the full document lists the rules that were fine or
did not apply, and the remarks about how the audit ran. This keeps a clean audit short.
"""

from __future__ import annotations

import json
import linecache
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from benchax.environment import installed
from benchax.grouping import group_by
from benchax.model import Severity
from benchax.reporting.document import (
    Block,
    Code,
    Document,
    Facts,
    Heading,
    Paragraph,
    Section,
    Style,
    Table,
    TableCell,
    TableColumn,
    TextRow,
    list_lines,
    list_parts,
    list_remarks,
    tabulate,
)
from benchax.reporting.tables import describe_machine, one_line
from benchax.results.audit import (
    PACK_OFF,
    SEVERITIES,
    Answer,
    Audit,
    Checklist,
    Finding,
    Outcome,
    Tick,
    Where,
)
from benchax.source_files import below_here, is_typed
from benchax.units import plural, seconds

STYLES: dict[Severity, Style] = {"error": "bad", "warning": "warning", "info": "info"}
UNSEEN: tuple[Outcome, ...] = ("not applicable", "not checked")
LEFT_OUT = "Rules without a finding are left out (-v lists them)."
NEIGHBOURS = 2
"""Lines of source that are quoted on both sides of the one that a finding is about."""


def document(a: Audit, is_full: bool = False, has_source: bool = False) -> Document:
    """An audit as a document.

    Args:
        is_full: also the rules that are fine or do not apply, and remarks that only inform.
        has_source: each finding with the lines of its source, as they are now.
    """
    blocks: list[Block] = [Heading(f"{one_line(a.name)}: {verdict(a)}", 1, (heading(a),))]
    for finding in a.findings:
        place = describe_place(finding.where) if finding.where else ""
        title = f"{finding.severity}  {one_line(finding.title)}"
        blocks += [Heading(title, aside=place, style=STYLES[finding.severity]), _list_facts("", lines(finding))]
        blocks += quote_source(finding.where) if finding.where and has_source else []
    if a.suppressed:
        suppressed = [(s.finding.rule, f"{s.finding.title}: {s.reason} ({s.by})") for s in a.suppressed]
        blocks.append(_list_facts("suppressed", suppressed))
    if looked := checks(a, is_full):
        blocks.append(_list_facts("looked at" if is_full else "", looked))
    if not is_full:
        blocks += [Paragraph(LEFT_OUT, "faint")] if a.checked else []
        blocks += [Paragraph(remark.message) for remark in a.remarks if remark.code == PACK_OFF]
    return Document((*blocks, *list_remarks(r for r in a.remarks if is_full or r.severity != "info")))


def document_in_full(a: Audit) -> Document:
    """For a page."""
    return document(a, is_full=True, has_source=True)


def quote_source(where: Where) -> list[Code]:
    """The line with its neighbours, marked; nothing where the file cannot be read."""
    file, number = where
    linecache.checkcache(file)
    # Python would look for other files of that name. A notebook cell is not a file; IPython keeps its lines for
    # tracebacks.
    lines = linecache.getlines(file) if is_typed(file) or Path(file).is_file() else []
    first = max(0, number - 1 - NEIGHBOURS)
    shown = enumerate(lines[first : number + NEIGHBOURS], first + 1)
    marked = "\n".join(f"{'>' if n == number else ' '} {n:5}  {text.rstrip()}" for n, text in shown)
    return [Code("python", marked)] if number <= len(lines) else []


def documents_of_all(audits: Sequence[Audit]) -> tuple[Document, ...]:
    """For a page: of several audits their verdicts first, each leading to its part."""
    lines = [(one_line(a.name), verdict(a)) for a in audits]
    styles: list[Style] = [STYLES[a.findings[0].severity] if a.findings else "" for a in audits]
    table = tabulate([TableColumn("function", "names"), TableColumn("verdict", "words")], lines, styles)
    return list_parts(f"Audit of {plural(len(audits), 'function')}", tuple(map(document_in_full, audits)), table)


def heading(a: Audit) -> str:
    """f32[8] · cpu · AMD EPYC · jax 0.10.2 · 23 rules in 31.2 s"""
    machine = describe_machine(a.environment) if a.environment else ""
    rules = f"{plural(len(a.checked), 'rule')} in {seconds(a.elapsed_s)}"
    return " · ".join(filter(None, (a.signature, machine, rules)))


def verdict(a: Audit) -> str:
    """2 findings (1 warning, 1 info); or nothing found: 12 rules fine, 1 not checked; or nothing is known: 35 not
    checked."""
    counts = [(outcome, len(a.outcomes(outcome))) for outcome in ("fine", *UNSEEN)]
    looked = ", ".join(f"{plural(n, 'rule') if outcome == 'fine' else n} {outcome}" for outcome, n in counts if n)
    if not a.findings:
        if any(remark.severity == "error" for remark in a.remarks):
            return f"little is known: {looked}"
        is_answered = bool(a.outcomes("fine") or a.outcomes("finding"))  # a suppressed finding is an answer
        return f"nothing {'found' if is_answered else 'is known'}{f': {looked}' if looked else ''}"
    graded = [(s, sum(f.severity == s for f in a.findings)) for s in reversed(SEVERITIES)]
    kinds = ", ".join(f"{n} {severity}" for severity, n in graded if n)
    return f"{plural(len(a.findings), 'finding')} ({kinds})" + (f"; {looked}" if looked else "")


def lines(finding: Finding) -> list[tuple[str, str]]:
    """(label, text) of one finding."""
    seen = [("seen" if not i else "", sentence) for i, sentence in enumerate(finding.seen)]
    gain = [("gain", finding.gain)] if finding.gain else []
    related = [(label, describe_place((file, line))) for label, file, line in finding.related]
    return [*seen, *related, *gain, ("do", finding.advice), ("rule", f"{finding.rule} ({finding.page})")]


def checks(a: Audit, is_full: bool = True) -> list[tuple[str, str]]:
    """Those that are fine in one line; each of the others with its reason, equal reasons together. What was not checked
    is always told: nothing found means less there."""
    fine = ", ".join(c.rule for c in a.outcomes("fine"))
    rows = [("fine", fine)] if fine and is_full else []
    for outcome in UNSEEN if is_full else UNSEEN[1:]:
        alike = group_by(a.outcomes(outcome), lambda checked: checked.why)
        rules = {why: ", ".join(checked.rule for checked in listed) for why, listed in alike.items()}
        rows += [(outcome, ": ".join(filter(None, (names, why)))) for why, names in rules.items()]
    # A rule can find something and also report what it could not check.
    return rows + [("partly", f"{c.rule}: {c.why}") for c in a.outcomes("finding") if c.why]


def describe_place(where: Where) -> str:
    """train.py:12, from the working directory where it lies below that."""
    return f"{below_here(Path(where[0]))}:{where[1]}"


def _list_facts(title: str, rows: Sequence[tuple[str, str]]) -> Facts:
    return Facts((Section(title, tuple(TextRow(label, value) for label, value in rows)),), "words")


ANSWERS: dict[Answer, tuple[str, Style]] = {
    "yes": ("✓", "good"),
    "no": ("✗", "bad"),
    "not applicable": ("–", "faint"),
    "not checked": ("?", "warning"),
}


TICK = TableColumn("", "words", 20, breaks_words=True)
MOST_REPEATED = 4
"""A reason that more lines share appears once, above them."""
CHECKLIST = (TableColumn("", "words"), TICK, TICK)


def document_of_checklist(c: Checklist) -> Document:
    reasons = Counter(tick.why for tick in c.ticks if tick.answer in UNSEEN)
    shared = [reason for reason, n in reasons.items() if n > MOST_REPEATED]
    rows: list[tuple[TableCell, ...]] = []
    for section in dict.fromkeys(tick.section for tick in c.ticks):
        rows.append((TableCell(""), TableCell(section, "title"), TableCell("")))
        rows += [_list_cells(tick, shared) for tick in c.ticks if tick.section == section]
    backend = c.environment.backend if c.environment else ""
    below = " · ".join(filter(None, (c.signature, backend, seconds(c.elapsed_s))))
    title = Heading(f"{one_line(c.name)}: {count_ticks(c)}", 1, (below,))
    told = (f"{plural(reasons[reason], 'line')} without a reason: {reason}." for reason in shared)
    return Document((title, *list_lines(told), Table(CHECKLIST, tuple(rows))))


def _list_cells(tick: Tick, shared: Sequence[str]) -> tuple[TableCell, ...]:
    reason = f"{tick.answer}, because {tick.why}" if tick.answer in UNSEEN else tick.why
    why = TableCell("" if tick.why in shared else reason, "faint")
    return TableCell(*ANSWERS[tick.answer]), TableCell(tick.text), why


def count_ticks(c: Checklist) -> str:
    """12 ✓, 2 ✗, 8 not applicable, 1 not checked"""
    counts = Counter({"yes": "✓", "no": "✗"}.get(tick.answer, tick.answer) for tick in c.ticks)
    return ", ".join(f"{counts[said]} {said}" for said in ("✓", "✗", *UNSEEN) if counts[said])


SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}


def to_sarif(audits: Sequence[Audit], folder: Path | None = None) -> str:
    """The document.

    Args:
        folder: files below it are named from there; default: the working directory.
    """
    root = (folder or Path.cwd()).absolute()
    notes = [
        {
            "level": "note",
            "message": {"text": f"{a.name}: {c.rule}: {c.outcome}, because {c.why}"},
            "associatedRule": {"id": c.rule},
        }
        for a in audits
        for c in a.checked
        if c.why
    ]
    run = {
        "tool": {"driver": _driver(audits)},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": notes}],
        "originalUriBaseIds": {"SRCROOT": {"uri": f"{root.as_uri()}/"}},
        "columnKind": "unicodeCodePoints",
        "results": [result for a in audits for result in _results(a, root)],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _driver(audits: Iterable[Audit]) -> dict[str, Any]:
    titles = {c.rule: c.title for a in audits for c in a.checked}
    for a in audits:
        titles |= {f.rule: f.rule for f in [*a.findings, *(s.finding for s in a.suppressed)] if f.rule not in titles}
    rules = [{"id": rule, "shortDescription": {"text": title}} for rule, title in titles.items()]
    version = installed("benchax")
    return {"name": "benchax", **({"version": version} if version else {}), "rules": rules}


def _results(a: Audit, root: Path) -> Iterator[dict[str, Any]]:
    yield from (_result(a, finding, root) for finding in a.findings)
    for s in a.suppressed:
        kind = "external" if s.by.startswith("[") else "inSource"
        suppression = {"kind": kind, "status": "accepted", "justification": s.reason}
        yield _result(a, s.finding, root) | {"suppressions": [suppression]}


def _result(a: Audit, finding: Finding, root: Path) -> dict[str, Any]:
    said = filter(None, (f"{a.name}: {finding.title}", *finding.seen, finding.gain, finding.advice))
    gains = {"gain": finding.gain, "gain_s": finding.gain_s, "gain_bytes": finding.gain_bytes, "page": finding.page}
    related = [
        _location(file, line, root) | {"id": i, "message": {"text": label}}
        for i, (label, file, line) in enumerate(finding.related, 1)
    ]
    return {
        "ruleId": finding.rule,
        "level": LEVELS[finding.severity],
        "message": {"text": "\n".join(said)},
        "properties": {name: value for name, value in gains.items() if value is not None},
        **({"locations": [_location(*finding.where, root)]} if finding.where else {}),
        **({"relatedLocations": related} if related else {}),
    }


def _location(file: str, line: int, root: Path) -> dict[str, Any]:
    full = root / file
    # As a URI, spaces and non-ASCII letters are percent-encoded. A leading colon would look like a scheme.
    artifact = {"uri": full.as_uri()}
    if full.is_relative_to(root):
        artifact = {"uri": full.as_uri().removeprefix(f"{root.as_uri()}/"), "uriBaseId": "SRCROOT"}
    return {"physicalLocation": {"artifactLocation": artifact, "region": {"startLine": line}}}
