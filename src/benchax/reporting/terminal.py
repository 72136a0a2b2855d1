"""Draws for a terminal, with rich: colours that respect NO_COLOR, tables that fit narrow windows, plain text for pipes.

Nothing here knows whether there is a terminal: `cli/console.py` asks that.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, JustifyMethod, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from benchax.model import Measurement, Remark
from benchax.reporting.tables import Section, Style, TextGrid, TextRow, heading, overview, sections

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
GAP = 2
"""Between the columns of a grid."""
TEXTS = (
    "case", "what", "why", "variant", "line", "operation", "where", "when (UTC)", "timer", "commit", "remarks",
    "verdict",
)  # fmt: skip
"""Columns of words, which begin at the left; the others hold numbers."""
FOLDS = {"case": 10, "line": 20, "timer": 8, "remarks": 12, "verdict": 20}
"""Columns that may be folded, down to this width; where that is not enough, a grid is drawn line by line."""


def measurement(m: Measurement, is_full: bool = False) -> RenderableType:
    """One measurement. `is_full`: see `tables.sections`."""
    title, where = heading(m)
    parts: list[RenderableType] = [Text(title, style="bold"), Text(where, style="dim")]
    if m.signature:
        parts.append(Text(m.signature, style="dim", overflow="ellipsis", no_wrap=len(m.signature) > 400))
    parts += [_Sections(sections(m, is_full)), remarks(m.remarks)]
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
            yield _stack_rows(part.rows) if is_narrow else _columns(part.rows, label, value)


def render_section(part: Section) -> RenderableType:
    """One section of numbers, laid out as those of a measurement."""
    return _Sections([part])


def section(part: Section) -> RenderableType:
    """One section whose values are texts: two columns that fold."""
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for row in part.rows:
        value = Text(row.value, style=STYLES[row.style])
        table.add_row(
            Text("  " + row.label, style="dim"), value + Text(f"  {row.detail}", style="dim") if row.detail else value
        )
    return Group(Text(part.title, style="bold"), table)


def _columns(rows: Sequence[TextRow], label: int, value: int) -> Table:
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(min_width=label + 2, no_wrap=True)
    table.add_column(min_width=value, justify="right", no_wrap=True)
    table.add_column(ratio=1)
    for row in rows:
        style = STYLES[row.style]
        table.add_row(Text("  " + row.label, style=style), Text(row.value, style=style or "cyan"), _detail(row))
    return table


def _stack_rows(rows: Sequence[TextRow]) -> Group:
    lines: list[RenderableType] = []
    for row in rows:
        style = STYLES[row.style]
        lines.append(Text.assemble(("  " + row.label + "  ", style), (row.value, style or "cyan")))
        if row.detail:
            lines.append(Padding(_detail(row), (0, 0, 0, 4)))
    return Group(*lines)


def _detail(row: TextRow) -> Text:
    return Text(
        row.detail, style=STYLES[row.style] if row.style in ("bad", "faint") else "dim" if not row.style else ""
    )


def remarks(listed: Sequence[Remark]) -> RenderableType:
    """Each with its mark: ✗ error, ! warning, · info."""
    if not listed:
        return Text()
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1)
    for remark in listed:
        mark, style = _REMARKS[remark.severity]
        table.add_row(
            Text("  " + mark, style=style), Text(remark.message, style=style if remark.severity == "error" else "")
        )
    return Group(Text(), Text("remarks", style="bold"), table)


def grid(table: TextGrid) -> RenderableType:
    """Many rows side by side."""
    return _Grid(table)


class _Grid:
    """Lays a grid out by the width of the console: as columns, of which texts may fold, or line by line."""

    def __init__(self, table: TextGrid) -> None:
        self.table = table
        lines = (table.columns, *table.lines)
        self.widths = [
            max(cell_len(part) for text in column for part in text.split("\n")) for column in zip(*lines, strict=True)
        ]

    @property
    def width(self) -> int:
        return sum(self.widths) + GAP * (len(self.widths) - 1)

    @property
    def least_width(self) -> int:
        columns = zip(self.table.columns, self.widths, strict=True)
        return self.width - sum(max(0, width - FOLDS.get(name, width)) for name, width in columns)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        yield self.render_wide() if self.least_width <= options.max_width else self.render_narrow()

    def render_wide(self) -> Table:
        drawn = Table(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0))
        for name in self.table.columns:
            side: JustifyMethod = "left" if name in TEXTS else "right"
            drawn.add_column(name, justify=side, overflow="fold", no_wrap=name not in FOLDS)
        for line, style in zip(self.table.lines, self.table.styles, strict=True):
            drawn.add_row(*map(Text, line), style=STYLES[style])
        return drawn

    def render_narrow(self) -> Group:
        parts: list[RenderableType] = []
        for line, style in zip(self.table.lines, self.table.styles, strict=True):
            drawn = Table.grid(padding=(0, GAP))
            drawn.add_column(no_wrap=True, style="dim")
            drawn.add_column(overflow="fold")
            for name, text in zip(self.table.columns, line, strict=True):
                if text:
                    drawn.add_row(Text(name), Text(text, style=STYLES[style]))
            parts += [Text(), drawn] if parts else [drawn]
        return Group(*parts)


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


def sentence(text: str) -> RenderableType:
    """A sentence below a table."""
    return Group(Text(), Text(text))


def to_text(content: RenderableType, width: int | None = None) -> str:
    """Plain text without colours: 100 wide, or as wide as its widest table, where `width` is not given."""
    width = max(100, _grid_width(content)) if width is None else width
    drawn = io.StringIO()
    Console(file=drawn, width=width, no_color=True, force_terminal=False, highlight=False).print(content)
    return "\n".join(line.rstrip() for line in drawn.getvalue().splitlines())


def _grid_width(content: RenderableType) -> int:
    parts = content.renderables if isinstance(content, Group) else [content]
    return max((part.width for part in parts if isinstance(part, _Grid)), default=0)
