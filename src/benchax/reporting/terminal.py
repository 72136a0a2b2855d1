"""Renders documents for a terminal, with rich: colours that respect NO_COLOR, tables that fit narrow windows, and plain
text for pipes.

Nothing here knows whether there is a terminal: `cli/console.py` asks that.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from benchax.model import Remark
from benchax.reporting.chart import Chart
from benchax.reporting.document import (
    Block,
    Code,
    Document,
    Facts,
    Heading,
    List,
    Paragraph,
    Remarks,
    Section,
    Sparkline,
    Table,
    TextRow,
)
from benchax.reporting.styles import MARKS, Style

STYLES: dict[Style, str] = {
    "": "",
    "good": "green",
    "bad": "bold red",
    "warning": "yellow",
    "info": "cyan",
    "faint": "dim",
    "title": "bold",
}
NARROW = 72
"""Below this width details go on lines of their own."""
LEAST_DETAIL = 30
"""And where no more than this is left beside long labels and values."""
GAP = 2
"""Between the columns of a table."""
LEAST_WIDTH = 100
"""The width of what is written into a pipe."""
ENDLESS = 400
"""A faint line of more characters is cut where the window ends: the signature of a model with a thousand arrays."""


def render(document: Document) -> RenderableType:
    """For a console, which prints it with `crop=False`: lines of programs may be longer than a window is wide."""
    parts: list[RenderableType] = []
    for is_apart, is_below, block in _place_blocks(document.blocks):
        parts += [Text(), _render_block(block, is_below)] if is_apart else [_render_block(block, is_below)]
    return Group(*parts)


def to_text(document: Document, width: int | None = None) -> str:
    """Plain text without colours: 100 wide, or as wide as its widest table, where `width` is not given."""
    tables = [_TableLayout(block).width for block in document.blocks if isinstance(block, Table)]
    wide = max(LEAST_WIDTH, *tables, 0) if width is None else width
    placed = _place_blocks(document.blocks)
    return "\n".join("\n" * is_apart + _print_block(block, is_below, wide) for is_apart, is_below, block in placed)


def _place_blocks(blocks: Sequence[Block]) -> Iterator[tuple[bool, bool, Block]]:
    """(is a blank line in front of it, does it stand below a heading, block)"""
    if blocks:
        yield False, False, blocks[0]
    for before, block in pairwise(blocks):
        level = before.level if isinstance(before, Heading) else None
        # The title of a document is followed by a sentence about all of it, or by its first part.
        is_apart = level is None or isinstance(block, Heading) or (level == 1 and not isinstance(block, Paragraph))
        yield is_apart, level == 2, block


def _print_block(block: Block, is_below: bool, width: int) -> str:
    if isinstance(block, Code):  # as it is: a console would expand its tabs
        return f"{block.title}\n{block.text}" if block.title else block.text
    printed = io.StringIO()
    # All of it said: FORCE_COLOR would make rich believe in a terminal, and escape codes end up in a file.
    console = Console(file=printed, width=width, no_color=True, force_terminal=False, highlight=False)
    console.print(_render_block(block, is_below))
    # Rich fills lines with blanks up to the width, which would be kept in files.
    return "\n".join(line.rstrip() for line in printed.getvalue().splitlines())


def _render_block(block: Block, is_below: bool) -> RenderableType:
    match block:
        case Heading():
            return _render_heading(block)
        case Paragraph():
            return _indent([_render_paragraph(block)], is_below)
        case List():
            return _indent(map(_render_paragraph, block.items), is_below)
        case Table():
            return _TableLayout(block)
        case Facts():
            return _FactsLayout(block.sections) if block.kind == "numbers" else _render_words(block.sections)
        case Remarks():
            return _render_remarks(block.remarks)
        case Code():
            title = [Text(block.title, style="bold")] if block.title else []
            return Group(*title, highlight(block.language, block.text))
        case Sparkline():
            return Text(f"{block.bars}  {block.caption}")
        case Chart():  # what it shows stands in tables, too
            return Text(f"chart: {block.caption}", style="dim")


def _render_heading(heading: Heading) -> RenderableType:
    aside = f"  {heading.aside}" if heading.aside else ""
    title = Text.assemble((heading.text, f"bold {STYLES[heading.style]}"), (aside, "dim"))
    return Group(title, *map(_render_below, heading.below))


def _render_below(text: str) -> Text:
    is_endless = len(text) > ENDLESS
    return Text(text, style="dim", overflow="ellipsis" if is_endless else "fold", no_wrap=is_endless)


def _render_paragraph(paragraph: Paragraph) -> Text:
    return Text(paragraph.text, style=STYLES[paragraph.style])


def _indent(parts: Iterable[RenderableType], is_below: bool) -> RenderableType:
    """What stands below a heading belongs to it."""
    return Padding(Group(*parts), (0, 0, 0, 2)) if is_below else Group(*parts)


def _render_remarks(listed: Sequence[Remark]) -> RenderableType:
    table = RichTable.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for remark in listed:
        mark, style = MARKS[remark.severity]
        is_error = remark.severity == "error"
        table.add_row(Text(f"  {mark}", STYLES[style]), Text(remark.message, STYLES[style] if is_error else ""))
    return table


# ---- facts ------------------------------------------------------------------------------------------------------


class _FactsLayout:
    """Lays sections out by the width of the console: three columns, or stacked where that is too narrow."""

    def __init__(self, sections: Sequence[Section]) -> None:
        self.sections = sections

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        # One width for all sections, so that the columns stand under one another.
        rows = [row for section in self.sections for row in section.rows]
        label = max((len(row.label) for row in rows), default=0)
        value = max((len(row.value) for row in rows), default=0)
        is_narrow = options.max_width < max(NARROW, label + value + LEAST_DETAIL)
        for i, section in enumerate(self.sections):
            yield from _render_title(section, is_first=i == 0)
            yield _stack_rows(section.rows) if is_narrow else _align_rows(section.rows, label, value)


def _render_title(section: Section, is_first: bool) -> Iterator[Text]:
    if not is_first:
        yield Text()
    if section.title:
        yield Text(section.title, style="bold")


def _align_rows(rows: Sequence[TextRow], label: int, value: int) -> RichTable:
    table = RichTable.grid(padding=(0, 2), pad_edge=False)
    table.add_column(min_width=label + 2, no_wrap=True)
    table.add_column(min_width=value, justify="right", no_wrap=True)
    table.add_column(ratio=1, overflow="fold")
    for row in rows:
        style = STYLES[row.style]
        table.add_row(Text("  " + row.label, style=style), Text(row.value, style=style or "cyan"), _render_detail(row))
    return table


def _stack_rows(rows: Sequence[TextRow]) -> Group:
    lines: list[RenderableType] = []
    for row in rows:
        style = STYLES[row.style]
        lines.append(Text.assemble(("  " + row.label + "  ", style), (row.value, style or "cyan")))
        if row.detail:
            lines.append(Padding(_render_detail(row), (0, 0, 0, 4)))
    return Group(*lines)


def _render_detail(row: TextRow) -> Text:
    return Text(
        row.detail, style=STYLES[row.style] if row.style in ("bad", "faint") else "dim" if not row.style else ""
    )


def _render_words(sections: Sequence[Section]) -> Group:
    """Sections whose values are texts: two columns, of which the second folds."""
    parts: list[RenderableType] = []
    for i, section in enumerate(sections):
        table = RichTable.grid(padding=(0, 2))
        table.add_column(overflow="fold")
        table.add_column(overflow="fold")
        for row in section.rows:
            detail = Text(f"  {row.detail}", style="dim") if row.detail else Text()
            table.add_row(Text("  " + row.label, style="dim"), Text(row.value, style=STYLES[row.style]) + detail)
        parts += [*_render_title(section, is_first=i == 0), table]
    return Group(*parts)


# ---- tables -----------------------------------------------------------------------------------------------------


class _TableLayout:
    """Lays a table out by the width of the console: as columns, of which some may fold, or row by row."""

    def __init__(self, table: Table) -> None:
        self.table = table
        columns = zip(table.names, *table.lines, strict=True)
        self.widths = [max(cell_len(part) for text in column for part in text.split("\n")) for column in columns]

    @property
    def width(self) -> int:
        return sum(self.widths) + GAP * (len(self.widths) - 1)

    @property
    def least_width(self) -> int:
        columns = zip(self.table.columns, self.widths, strict=True)
        return self.width - sum(max(0, width - (c.least_width or width)) for c, width in columns)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        yield self.render_wide() if self.least_width <= options.max_width else self.render_narrow()
        if self.table.note:
            yield Text(self.table.note, style="dim")

    def render_wide(self) -> RichTable:
        has_head = any(self.table.names)
        drawn = RichTable(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0), show_header=has_head)
        for column in self.table.columns:
            drawn.add_column(
                Text(column.name),
                justify="right" if column.kind == "numbers" else "left",
                overflow="fold",
                no_wrap=column.least_width is None,
            )
        for row in self.table.rows:
            drawn.add_row(*(Text(cell.text, style=STYLES[cell.style]) for cell in row))
        return drawn

    def render_narrow(self) -> Group:
        parts: list[RenderableType] = []
        for row in self.table.rows:
            drawn = RichTable.grid(padding=(0, GAP))
            drawn.add_column(style="dim", overflow="fold")
            drawn.add_column(overflow="fold")
            for name, cell in zip(self.table.names, row, strict=True):
                if cell.text:
                    drawn.add_row(Text(name), Text(cell.text, style=STYLES[cell.style]))
            parts += [Text(), drawn] if parts else [drawn]
        return Group(*parts)


# ---- texts of programs -----------------------------------------------------------------------------------------


# In this order: what comes later wins.
_COLORS: dict[str, tuple[tuple[str, str], ...]] = {
    "jaxpr": (
        (r"\b[a-z]\w*\[[\d,]*\]", "cyan"),
        (r"(?<== )[\w.\-]+", "bold"),
        (r"\b(?:lambda|let|in)\b", "dim"),
    ),
    "stablehlo": (
        (r"tensor<[^>]*>", "cyan"),
        (r"(?<== )\"?[\w.]+\"?", "bold"),
        (r"@[\w.]+", "green"),
        (r"loc\(.*?\)$", "dim"),
    ),
    "hlo": (
        (r"\b[a-z]\w*\[[\d,]*\](?:\{[^}]*\})?", "cyan"),
        (r"(?<= )[a-z][\w\-]*(?=\()", "bold"),
        (r"^(?:ENTRY )?%[\w.\-]+(?= \()", "green"),
        (r"(?:metadata|backend_config)=\{.*", "dim"),
    ),
    "diff": ((r"^\+.*", "green"), (r"^-.*", "red"), (r"^@@.*", "cyan")),
}


def highlight(language: str, text: str) -> Text:
    """Lines stay as long as they are: a window breaks them, or a pipe does not."""
    colored = Text(text, no_wrap=True, overflow="ignore")
    for pattern, style in _COLORS[language]:
        colored.highlight_regex(re.compile(pattern, re.MULTILINE), style)
    return colored
