"""Draws for a terminal, with rich: colours that respect NO_COLOR, tables that fit a narrow window, plain text in pipes."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from benchax.model import Measurement, Remark
from benchax.reporting.tables import Grid, Row, Section, Style, heading, overview, sections

STYLES: dict[Style, str] = {
    "": "",
    "good": "green",
    "bad": "bold red",
    "warning": "yellow",
    "faint": "dim",
    "title": "bold",
}
_REMARKS = {"error": ("✗", STYLES["bad"]), "warning": ("!", STYLES["warning"]), "info": ("·", STYLES["faint"])}
NARROW = 72
"""Below this width details go on lines of their own."""


def measurement(m: Measurement) -> RenderableType:
    """One measurement in full."""
    title, where = heading(m)
    parts: list[RenderableType] = [Text(title, style="bold"), Text(where, style="dim")]
    if m.signature:
        parts.append(Text(m.signature, style="dim", overflow="ellipsis", no_wrap=len(m.signature) > 400))
    parts += [_Sections(sections(m)), remarks(m.remarks)]
    return Group(*parts)


class _Sections:
    """Lays sections out by the width of the console: three columns, or stacked where that is too narrow."""

    def __init__(self, parts: Sequence[Section]) -> None:
        self.parts = parts

    def __rich_console__(self, console: Console, options: object) -> Iterable[RenderableType]:
        is_narrow = console.width < NARROW
        # One width for all sections, so that the columns stand under one another.
        label = max((len(row.label) for part in self.parts for row in part.rows), default=0)
        value = max((len(row.value) for part in self.parts for row in part.rows), default=0)
        for part in self.parts:
            yield Text()
            yield Text(part.title, style="bold")
            yield _stacked(part.rows) if is_narrow else _columns(part.rows, label, value)


def _columns(rows: Sequence[Row], label: int, value: int) -> Table:
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(min_width=label + 2, no_wrap=True)
    table.add_column(min_width=value, justify="right", no_wrap=True)
    table.add_column(ratio=1)
    for row in rows:
        style = STYLES[row.style]
        table.add_row(Text("  " + row.label, style=style), Text(row.value, style=style or "cyan"), _detail(row))
    return table


def _stacked(rows: Sequence[Row]) -> Group:
    lines: list[RenderableType] = []
    for row in rows:
        style = STYLES[row.style]
        lines.append(Text.assemble(("  " + row.label + "  ", style), (row.value, style or "cyan")))
        if row.detail:
            lines.append(Padding(_detail(row), (0, 0, 0, 4)))
    return Group(*lines)


def _detail(row: Row) -> Text:
    return Text(row.detail, style=STYLES[row.style] if row.style in ("bad", "faint") else "dim" if not row.style else "")


def remarks(listed: Sequence[Remark]) -> RenderableType:
    """Each with its mark: ✗ error, ! warning, · info."""
    if not listed:
        return Text()
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for remark in listed:
        mark, style = _REMARKS[remark.severity]
        table.add_row(Text("  " + mark, style=style), Text(remark.message, style=style if remark.severity == "error" else ""))
    return Group(Text(), Text("remarks", style="bold"), table)


def grid(table: Grid) -> RenderableType:
    """Many rows side by side."""
    drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for i, name in enumerate(table.columns):
        drawn.add_column(name, justify="left" if i in (0, len(table.columns) - 1) else "right", overflow="fold")
    for line, style in zip(table.lines, table.styles, strict=True):
        drawn.add_row(*map(Text, line), style=STYLES[style])
    return drawn


def measurements(listed: Sequence[Measurement]) -> RenderableType:
    """An overview, then what each row's remarks and failures say."""
    parts: list[RenderableType] = [grid(overview(listed))]
    for m in listed:
        if m.failure:
            advice = f"\n{m.failure.advice}" if m.failure.advice else ""
            text = f"{m.failure.kind.replace('_', ' ')} in {m.failure.stage}: {m.failure.message}{advice}"
            parts += [Text(), Text(m.case.label, style="bold"), Padding(Text(text, style=STYLES["bad"]), (0, 0, 0, 2))]
        elif said := [r for r in m.remarks if r.severity != "info"]:
            parts += [Text(), Text(m.case.label, style="bold"), remarks(said).renderables[2]]  # type: ignore[union-attr]
    return Group(*parts)


def to_text(content: RenderableType, width: int = 100) -> str:
    """Plain text without colours, for `str()`."""
    console = Console(file=io.StringIO(), width=width, no_color=True, force_terminal=False, highlight=False)
    console.print(content)
    text = console.file.getvalue()  # type: ignore[union-attr]
    return "\n".join(line.rstrip() for line in text.splitlines())
