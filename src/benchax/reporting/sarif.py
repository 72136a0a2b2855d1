"""Audits as SARIF 2.1.0 (OASIS, 2020), which code hosts show next to the lines of a change.

One run for all audits. A suppressed finding is a result with a suppression, and a rule that could not look is a
notification of the invocation: a reader of the file sees as much as one of the terminal.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchax.environment import installed
from benchax.model import Severity
from benchax.results.audit import Audit, Checked, Finding, Suppressed

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json"
LEVELS: dict[Severity, str] = {"error": "error", "warning": "warning", "info": "note"}


def text(audits: Sequence[Audit], folder: Path | None = None) -> str:
    """The document.

    Args:
        folder: files below it are named from there; default: the working directory.
    """
    root = (folder or Path.cwd()).absolute()
    run = {
        "tool": {"driver": _driver(audits)},
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": _notifications(audits)}],
        "originalUriBaseIds": {"SRCROOT": {"uri": f"{root.as_uri()}/"}},
        "columnKind": "unicodeCodePoints",
        "results": [result for a in audits for result in _results(a, root)],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _driver(audits: Iterable[Audit]) -> dict[str, Any]:
    titles = {c.rule: c.title for a in audits for c in a.checked}
    for a in audits:
        titles |= {f.rule: f.rule for f in _every(a) if f.rule not in titles}
    rules = [{"id": rule, "shortDescription": {"text": title}} for rule, title in titles.items()]
    version = installed("benchax")
    return {"name": "benchax", **({"version": version} if version else {}), "rules": rules}


def _every(a: Audit) -> list[Finding]:
    return [*a.findings, *(s.finding for s in a.suppressed)]


def _notifications(audits: Iterable[Audit]) -> list[dict[str, Any]]:
    unseen = [(a, c) for a in audits for c in a.checked if c.why]
    return [_notification(a, c) for a, c in unseen]


def _notification(a: Audit, checked: Checked) -> dict[str, Any]:
    said = f"{a.name}: {checked.rule}: {checked.outcome}, because {checked.why}"
    return {"level": "note", "message": {"text": said}, "associatedRule": {"id": checked.rule}}


def _results(a: Audit, root: Path) -> list[dict[str, Any]]:
    shown = [_result(a, finding, root) for finding in a.findings]
    return shown + [_result(a, s.finding, root) | {"suppressions": [_suppression(s)]} for s in a.suppressed]


def _result(a: Audit, finding: Finding, root: Path) -> dict[str, Any]:
    said = [f"{a.name}: {finding.title}", *finding.seen, *([finding.gain] if finding.gain else []), finding.advice]
    gains = {"gain": finding.gain, "gain_s": finding.gain_s, "gain_bytes": finding.gain_bytes, "page": finding.page}
    result: dict[str, Any] = {
        "ruleId": finding.rule,
        "level": LEVELS[finding.severity],
        "message": {"text": "\n".join(said)},
        "properties": {name: value for name, value in gains.items() if value is not None},
    }
    related = [
        _location(file, line, root) | {"id": i, "message": {"text": label}}
        for i, (label, file, line) in enumerate(finding.related, 1)
    ]
    result |= {"locations": [_location(*finding.where, root)]} if finding.where else {}
    return result | ({"relatedLocations": related} if related else {})


def _location(file: str, line: int, root: Path) -> dict[str, Any]:
    return {"physicalLocation": {"artifactLocation": _artifact(Path(file), root), "region": {"startLine": line}}}


def _artifact(file: Path, root: Path) -> dict[str, Any]:
    full = file if file.is_absolute() else root / file
    if full.is_relative_to(root):
        # As a URI: spaces and letters beyond ASCII are written in percents. A colon in front would read as a scheme.
        return {"uri": full.as_uri().removeprefix(f"{root.as_uri()}/"), "uriBaseId": "SRCROOT"}
    return {"uri": full.as_uri()}


def _suppression(s: Suppressed) -> dict[str, Any]:
    return {"kind": "external" if s.by.startswith("[") else "inSource", "status": "accepted", "justification": s.reason}
