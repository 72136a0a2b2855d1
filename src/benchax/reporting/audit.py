"""An audit in words: each finding with what was seen, what it gains and what to do; then what else was looked at.

Where nothing was found, the audit says what it looked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchax.model import Severity
from benchax.reporting import terminal
from benchax.results.audit import SEVERITIES, Audit, Checked, Finding, Where
from benchax.units import seconds

STYLES: dict[Severity, str] = {"error": "red", "warning": "yellow", "info": "cyan"}
# As those of measurements in notebooks: readable on white and on dark grey.
COLORS: dict[Severity, str] = {"error": "#e03e3e", "warning": "#b77400", "info": "#0e7c86"}
UNSEEN = ("not applicable", "not checked")


def render_audit(a: Audit) -> RenderableType:
    """For the terminal."""
    parts: list[RenderableType] = [Text(_line(a.name), style="bold"), Text(heading(a), style="dim"), Text(verdict(a))]
    for finding in a.findings:
        head = f"{finding.severity}  {_line(finding.title)}"
        place = f"  {describe_place(finding.where)}" if finding.where else ""
        parts += [Text(), Text.assemble((head, f"bold {STYLES[finding.severity]}"), (place, "dim"))]
        parts.append(_table([*lines(finding)]))
    if a.suppressed:
        parts += [Text(), Text("suppressed", style="bold"), _table(list_suppressed(a))]
    if looked := checks(a):
        parts += [Text(), Text("looked at", style="bold"), _table(looked)]
    if a.remarks:
        parts.append(terminal.remarks(a.remarks))
    return Group(*parts)


def text(a: Audit) -> str:
    return terminal.to_text(render_audit(a))


def html(a: Audit) -> str:
    """A fragment for notebooks; every text escaped."""
    head = f"<b>{escape(a.name)}</b><div style='opacity:.65;font-size:90%'>{escape(heading(a))}</div>"
    body = "".join(_html_finding(finding) for finding in a.findings)
    rest = "".join(
        f"<p><b>{title}</b></p>{_html_table(rows)}"
        for title, rows in (("suppressed", list_suppressed(a)), ("looked at", checks(a)))
        if rows
    )
    notes = "".join(f"<div style='opacity:.75'>{escape(remark.message)}</div>" for remark in a.remarks)
    said = f"<div>{escape(verdict(a))}</div>"
    return f"<div class='benchax' style='overflow-wrap:anywhere'>{head}{said}{body}{rest}{notes}</div>"


def document(audits: Sequence[Audit]) -> str:
    """A page that needs nothing but itself."""
    body = "<hr>".join(html(a) for a in audits)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'><title>benchax audit</title><style>"
        ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;"
        "padding:0 1em}</style></head><body>" + body + "</body></html>\n"
    )


def heading(a: Audit) -> str:
    """f32[8] · cpu · AMD EPYC · jax 0.10.2 · 23 rules in 31.2 s"""
    env = a.environment
    rules = f"{len(a.checked)} {_rules(len(a.checked))}in {seconds(a.elapsed_s)}"
    if env is None:
        return " · ".join(filter(None, (a.signature, rules)))
    device = env.processor if env.backend == "cpu" else env.device_kind
    parts = (a.signature, env.backend, device, f"jax {env.jax}" if env.jax else "", rules)
    return " · ".join(part for part in parts if part)


def _rules(n: int) -> str:
    return "rule " if n == 1 else "rules "


def verdict(a: Audit) -> str:
    """2 findings: 1 warning, 1 info. Or: nothing found: 12 rules fine, 5 not applicable, 1 not checked. Or: nothing can
    be said: 35 not checked."""
    counts = [(outcome, len(a.outcomes(outcome))) for outcome in ("fine", *UNSEEN)]
    looked = ", ".join(f"{n} {_rules(n) * (outcome == 'fine')}{outcome}" for outcome, n in counts if n)
    if not a.findings:
        if any(remark.severity == "error" for remark in a.remarks):
            return f"little can be said: {looked}"
        is_answered = bool(a.outcomes("fine") or a.outcomes("finding"))  # a suppressed finding is an answer
        return f"nothing {'found' if is_answered else 'can be said'}{f': {looked}' if looked else ''}"
    graded = [(s, sum(f.severity == s for f in a.findings)) for s in reversed(SEVERITIES)]
    kinds = ", ".join(f"{n} {severity}" for severity, n in graded if n)
    number = f"{len(a.findings)} finding{'s' * (len(a.findings) > 1)}"
    return f"{number}: {kinds}" + (f"; {looked}" if looked else "")


def lines(finding: Finding) -> list[tuple[str, str]]:
    """(label, text) of one finding."""
    seen = [("seen" if not i else "", sentence) for i, sentence in enumerate(finding.seen)]
    gain = [("gain", finding.gain)] if finding.gain else []
    return [*seen, *gain, ("do", finding.advice), ("rule", f"{finding.rule} ({finding.page})")]


def list_suppressed(a: Audit) -> list[tuple[str, str]]:
    return [(s.finding.rule, f"{s.finding.title}: {s.reason} ({s.by})") for s in a.suppressed]


def checks(a: Audit) -> list[tuple[str, str]]:
    """Those that are fine in one line; each of the others with its reason, equal reasons together."""
    fine = ", ".join(c.rule for c in a.outcomes("fine"))
    rows = [("fine", fine)] if fine else []
    for outcome in UNSEEN:
        for why, alike in _by_reason(a.outcomes(outcome)):
            rows.append((outcome, f"{', '.join(alike)}: {why}" if why else ", ".join(alike)))
    # A rule can find something and still say what it could not see.
    return rows + [("partly", f"{c.rule}: {c.why}") for c in a.outcomes("finding") if c.why]


def _by_reason(listed: Sequence[Checked]) -> list[tuple[str, list[str]]]:
    alike: dict[str, list[str]] = {}
    for checked in listed:
        alike.setdefault(checked.why, []).append(checked.rule)
    return list(alike.items())


def describe_place(where: Where) -> str:
    """train.py:12, from the working directory where it lies below that."""
    path, here = Path(where[0]), Path.cwd()
    return f"{path.relative_to(here) if path.is_relative_to(here) else path}:{where[1]}"


def _table(rows: Sequence[tuple[str, str]]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows:
        table.add_row(Text("  " + label, style="dim"), Text(value))
    return table


def _html_finding(finding: Finding) -> str:
    place = f" <span style='opacity:.65'>{escape(describe_place(finding.where))}</span>" if finding.where else ""
    head = f"<b style='color:{COLORS[finding.severity]}'>{finding.severity}</b> <b>{escape(finding.title)}</b>{place}"
    return f"<div style='margin-top:1em'>{head}{_html_table(lines(finding))}</div>"


def _html_table(rows: Sequence[tuple[str, str]]) -> str:
    cell = "padding:1px 12px 1px 0;text-align:left;vertical-align:top;border:0;"
    body = "".join(
        f"<tr style='background:none'><td style='{cell}opacity:.65;white-space:nowrap'>{escape(label)}</td>"
        f"<td style='{cell}'>{escape(value)}</td></tr>"
        for label, value in rows
    )
    return f"<table style='border-collapse:collapse;margin:0'>{body}</table>"


def _line(said: str) -> str:
    return " ".join(said.split())
