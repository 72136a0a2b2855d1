"""A checklist in words: ✓, ✗ or –, the advice, and beside it what was measured."""

from __future__ import annotations

from html import escape

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from benchax.reporting import terminal
from benchax.results.audit import Answer, Checklist, Tick
from benchax.units import seconds

MARKS: dict[Answer, tuple[str, str]] = {
    "yes": ("✓", "green"),
    "no": ("✗", "red"),
    "not applicable": ("–", "dim"),
    "not checked": ("?", "yellow"),
}


def render_checklist(c: Checklist) -> RenderableType:
    """For the terminal."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(max_width=42)
    table.add_column(overflow="fold")
    for section in dict.fromkeys(tick.section for tick in c.ticks):
        table.add_row("", Text(section, style="bold"), "")
        for tick in (tick for tick in c.ticks if tick.section == section):
            mark, style = MARKS[tick.answer]
            table.add_row(Text(mark, style=style), Text(tick.text), Text(describe_tick(tick), style="dim"))
    return Group(Text(" ".join(c.name.split()), style="bold"), Text(heading(c), style="dim"), Text(), table)


def text(c: Checklist) -> str:
    return terminal.to_text(render_checklist(c))


def html(c: Checklist) -> str:
    """A fragment for notebooks; every text escaped."""
    cell = "padding:1px 12px 1px 0;text-align:left;vertical-align:top;border:0"
    rows = "".join(
        f"<tr style='background:none'><td style='{cell}'>{MARKS[tick.answer][0]}</td>"
        f"<td style='{cell}'>{escape(tick.text)}</td>"
        f"<td style='{cell};opacity:.75'>{escape(describe_tick(tick))}</td></tr>"
        for tick in c.ticks
    )
    head = f"<b>{escape(c.name)}</b><div style='opacity:.65;font-size:90%'>{escape(heading(c))}</div>"
    return f"<div class='benchax' style='overflow-wrap:anywhere'>{head}<table>{rows}</table></div>"


def heading(c: Checklist) -> str:
    """f32[8] · cpu · 12 ✓, 2 ✗, 8 not applicable, 1 not checked · 41.0 s"""
    counts = {answer: sum(tick.answer == answer for tick in c.ticks) for answer in MARKS}
    words = {"yes": "✓", "no": "✗"}
    counted = ", ".join(f"{n} {words.get(answer, answer)}" for answer, n in counts.items() if n)
    backend = c.environment.backend if c.environment else ""
    return " · ".join(part for part in (c.signature, backend, counted, seconds(c.elapsed_s)) if part)


def describe_tick(tick: Tick) -> str:
    """not applicable, because there is one device"""
    if tick.answer in ("not applicable", "not checked"):
        return f"{tick.answer}, because {tick.why}"
    return tick.why
