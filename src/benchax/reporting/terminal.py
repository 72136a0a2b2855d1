"""Renders documents for a terminal, with rich: colours that respect NO_COLOR, tables that fit narrow windows, and plain
text for pipes.

Only `to_printed` asks whether there is a terminal; for commands `cli/console.py` does.
"""

from __future__ import annotations

import io
import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise, product
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.table import Table as RichTable
from rich.text import Text

from benchax.model import Remark
from benchax.printable import show_controls, show_line
from benchax.reporting.document import (
    MARKS,
    Chart,
    Code,
    Document,
    Facts,
    Heading,
    List,
    Outline,
    Paragraph,
    Remarks,
    Section,
    Sparkline,
    Style,
    Table,
    TableColumn,
    TextRow,
    rewrite,
    tabulate_outline,
)
from benchax.reporting.tables import cut_middle

# Colours the text of programs in a terminal: jaxpr, StableHLO, HLO, and the differences between two programs.

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
"""Below this width, details go on separate lines."""
LEAST_DETAIL = 30
"""Details also go on separate lines if long labels and values leave no more than this width."""
LONGEST_BESIDE = 32
"""A longer title is alone on its line."""
LEAST_WIDTH_BESIDE = 10
"""The least width of a text next to its label."""
GAP = 2
"""Between the columns of a table."""
LONGEST_NAME = 40
"""A table leaves columns out before it cuts a name of up to this width."""
LEAST_WIDTH = 100
"""The width of text that goes into a pipe."""
Shown = Heading | Paragraph | List | Table | Facts | Remarks | Code | Sparkline | Chart
"""The blocks that remain after outlines become tables."""
ENDLESS = 400
"""A faint line of more characters is cut where the window ends: the signature of a model with a thousand arrays."""


def render(document: Document) -> RenderableType:
    """For a console, which prints it with `crop=False`: lines of programs, and words, may be longer than a window."""
    placed = _place_blocks(_prepare(document))
    return Group(*(Group(*[Text()] * is_apart, _render_block(block, below)) for is_apart, below, block in placed))


def to_text(document: Document, width: int | None = None) -> str:
    """Plain text without colours: 100 wide, or as wide as its widest table, where `width` is not given."""
    blocks = _prepare(document)
    tables = [_TableLayout(block).width for block in blocks if isinstance(block, Table)]
    wide = max(LEAST_WIDTH, *tables, 0) if width is None else width
    placed = _place_blocks(blocks)
    return "\n".join("\n" * is_apart + _print_block(block, is_below, wide) for is_apart, is_below, block in placed)


def to_printed(document: Document) -> str:
    """The text of `print(result)`: as wide as the terminal, if there is one."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    return to_text(document, shutil.get_terminal_size().columns if is_terminal else None)


def _prepare(document: Document) -> tuple[Shown, ...]:
    """Only blocks that a terminal can show, and nothing in them that it would obey: names may be of strangers."""
    shown = chain.from_iterable(
        (Heading(block.caption), tabulate_outline(block)) if isinstance(block, Outline) else (block,)
        for block in document.blocks
    )
    return rewrite(tuple(shown), _spell_out)


def _spell_out(part: Any) -> Any:
    match part:
        case str():
            return show_controls(part)
        case Heading():
            rest = {name: rewrite(getattr(part, name), _spell_out) for name in ("below", "answers")}
            return replace(part, text=show_line(part.text), aside=show_line(part.aside), **rest)
        case Chart():  # only its caption is shown
            return part
        case _:
            return None


def _place_blocks(blocks: Sequence[Shown]) -> Iterator[tuple[bool, bool, Shown]]:
    """Yields (is a blank line before it, is it directly below a heading, block) for each block."""
    if blocks:
        yield False, False, blocks[0]
    for before, block in pairwise(blocks):
        level = before.level if isinstance(before, Heading) else None
        # After the title of a document comes a sentence about all of it, or its first part.
        is_apart = level is None or isinstance(block, Heading) or (level == 1 and not isinstance(block, Paragraph))
        yield is_apart, level == 2, block


def _print_block(block: Shown, is_below: bool, width: int) -> str:
    if isinstance(block, Code):  # as it is: a console would expand its tabs
        return f"{block.title}\n{block.text}" if block.title else block.text
    printed = io.StringIO()
    # Set everything explicitly: FORCE_COLOR would make rich assume a terminal, and write escape codes into files. In
    # Jupyter, rich would display pieces and write nothing into `printed`.
    console = Console(
        file=printed, width=width, no_color=True, force_terminal=False, force_jupyter=False, highlight=False
    )
    console.print(_render_block(block, is_below), crop=False)
    # Strip the spaces with which rich fills each line; files would keep them.
    return "\n".join(line.rstrip() for line in printed.getvalue().splitlines())


def _render_block(block: Shown, is_below: bool) -> RenderableType:
    match block:
        case Heading():
            return _render_heading(block)
        case Paragraph():
            return _render_paragraph(block, is_below)
        case List():
            return Group(*(_render_paragraph(item, is_below) for item in block.items))
        case Table():
            return _TableLayout(block)
        case Facts():
            return _FactsLayout(block.sections) if block.kind == "numbers" else Group(*_render_words(block.sections))
        case Remarks():
            return Group(*map(_render_remark, block.remarks))
        case Code():
            return Group(*_render_title(block.title), highlight(block.language, block.text))
        case Sparkline():
            return Folded(Text(f"{block.bars}  {block.caption}"))
        case Chart():  # what it shows stands in tables, too
            return Folded(Text(show_controls(f"chart: {block.caption}"), style="dim"))


def _render_heading(heading: Heading) -> RenderableType:
    aside = f"  {heading.aside}" if heading.aside else ""
    title = [Folded(Text.assemble((heading.text, f"bold {STYLES[heading.style]}"), (aside, "dim")))]
    below = map(_render_below, heading.below)
    answers = heading.answers
    if answers and cell_len(heading.text) <= LONGEST_BESIDE and "\n" not in heading.text:
        title, answers = [], (replace(answers[0], label=heading.text), *answers[1:])
    return Group(*title, *([_FactsLayout((Section("", answers),), indent="")] if answers else []), *below)


def _render_below(text: str) -> RenderableType:
    if len(text) <= ENDLESS:
        return Folded(Text(text, style="dim"))
    return Text(text, style="dim", no_wrap=True, overflow="ellipsis")


def _render_paragraph(paragraph: Paragraph, is_below: bool) -> RenderableType:
    """A paragraph below a heading belongs to it."""
    return Folded(Text(paragraph.text, style=STYLES[paragraph.style]), indent="  " if is_below else "")


def _render_remark(remark: Remark) -> Folded:
    mark, style = MARKS[remark.severity]
    message = Text(remark.message, STYLES[style] if remark.severity == "error" else "")
    return Folded(message, Text.assemble("  ", (mark, STYLES[style]), " "), indent="    ")


# ---- facts ------------------------------------------------------------------------------------------------------


@dataclass
class _FactsLayout:
    """Lays sections out by the width of the console: three columns, or stacked if that is too narrow."""

    sections: Sequence[Section]
    indent: str = "  "

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        # Use one width for all sections, so that the columns line up.
        rows = [row for section in self.sections for row in section.rows]
        label = max((len(row.label) for row in rows), default=0)
        value = max((len(row.value) for row in rows), default=0)
        word = longest_word(row.detail for row in rows)
        # Before each detail come the label, indented by two, and the value, each followed by a gap.
        is_narrow = options.max_width < max(NARROW, label + value + max(LEAST_DETAIL, 2 + 2 * GAP + word))
        for i, section in enumerate(self.sections):
            if i:
                yield Text()
            yield from _render_title(section.title)
            yield from (
                _stack_rows(section.rows) if is_narrow else [_align_rows(section.rows, label, value, self.indent)]
            )


def _render_title(title: str) -> list[Text]:
    return [Text(title, style="bold")] if title else []


def _align_rows(rows: Sequence[TextRow], label: int, value: int, indent: str) -> RichTable:
    table = RichTable.grid(padding=(0, 2), pad_edge=False)
    table.add_column(min_width=label + len(indent), no_wrap=True)
    table.add_column(min_width=value, justify="right", no_wrap=True)
    table.add_column(ratio=1)
    for row in rows:
        style = STYLES[row.style]
        detail = Folded(_render_detail(row))
        table.add_row(Text(indent + row.label, style=style), Text(row.value, style=style or "cyan"), detail)
    return table


def _stack_rows(rows: Sequence[TextRow]) -> Iterator[Folded]:
    for row in rows:
        style = STYLES[row.style]
        line = Text.assemble((row.label + "  ", style), (row.value, style or "cyan"))
        yield Folded(line, Text("  "), indent="    ")
        if row.detail:
            yield Folded(_render_detail(row), indent="    ")


def _render_detail(row: TextRow) -> Text:
    return Text(row.detail, style=STYLES[row.style or "faint"] if row.style in ("", "bad", "faint") else "")


def _render_words(sections: Sequence[Section]) -> Iterator[RenderableType]:
    """Renders sections whose values are texts, next to their labels."""
    for i, section in enumerate(sections):
        if i:
            yield Text()
        yield from _render_title(section.title)
        label = max((cell_len(row.label) for row in section.rows), default=0)
        for row in section.rows:
            text = Text(row.value, style=STYLES[row.style]) + Text(f"  {row.detail}" if row.detail else "", style="dim")
            yield _Labelled(Text(f"  {row.label}", style="dim"), text, label + 2 + GAP)


@dataclass
class _Labelled:
    """A text next to its label, or below it if the label leaves no room for a word of the text."""

    label: Text
    text: Text
    width: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        if self.width + max(LEAST_WIDTH_BESIDE, longest_word([self.text.plain])) <= options.max_width:
            self.label.pad_right(self.width - self.label.cell_len)
            yield Folded(self.text, self.label, " " * self.width)
        else:
            indent = self.label.cell_len - len(self.label.plain.lstrip())
            yield Folded(self.label)
            yield Folded(self.text, indent=" " * (indent + 2))


# ---- tables -----------------------------------------------------------------------------------------------------


class _TableLayout:
    """Lays a table out by the width of the console: as columns that can fold or be left out, or row by row."""

    def __init__(self, table: Table, left_out: Sequence[str] = ()) -> None:
        self.table, self.left_out = table, left_out
        texts = list(zip(table.names, *table.lines, strict=True))
        self.cell_widths = [_widest(column[1:]) for column in texts]
        self.widths = [_widest(column) for column in texts]
        self.least_widths = [
            min(width, max(column.least_width or 0, _longest(column, parts[1:])))
            for column, width, parts in zip(table.columns, self.widths, texts, strict=True)
        ]

    @property
    def width(self) -> int:
        return _with_gaps(self.widths)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        optional = [i for i, column in enumerate(self.table.columns) if column.is_optional]
        columns = zip(self.table.columns, self.widths, strict=True)
        # At this width nothing folds, and only very long names are cut.
        readable = _with_gaps([min(width, LONGEST_NAME) if column.is_cut else width for column, width in columns])
        if optional and readable > options.max_width:
            fewer = self.table.with_columns(set(range(len(self.table.columns))) - {optional[-1]})
            yield _TableLayout(fewer, (self.table.names[optional[-1]], *self.left_out))
            return
        fits = _with_gaps(self.least_widths) <= options.max_width
        yield self.render_wide(self.fit(options.max_width)) if fits else Group(*self.render_narrow())
        notes = [self.table.note, f"Hidden at this width: {', '.join(self.left_out)}." if self.left_out else ""]
        yield from (Folded(Text(note, style="dim")) for note in notes if note)

    def fit(self, room: int) -> list[int]:
        """Widths that fill the room: heads fold and names are cut first, then the widest columns fold. A word of a
        head is broken only if nothing else helps."""
        heads = [longest_word([name]) for name in self.table.names]
        columns = list(zip(self.table.columns, self.cell_widths, self.least_widths, heads, strict=True))
        cut_alone = [least if column.is_cut else max(width, head) for column, width, least, head in columns]
        whole_heads = list(map(max, self.least_widths, heads))
        for least_widths, most in product((cut_alone, whole_heads, self.least_widths), range(room, 0, -1)):
            fitted = [max(least, min(width, most)) for width, least in zip(self.widths, least_widths, strict=True)]
            if _with_gaps(fitted) <= room:
                return fitted
        return self.least_widths

    def render_wide(self, widths: Sequence[int]) -> RichTable:
        has_head = any(self.table.names)
        drawn = RichTable(box=None, pad_edge=False, header_style="bold", padding=(0, GAP, 0, 0), show_header=has_head)
        for column, width in zip(self.table.columns, widths, strict=True):
            name = Text("\n").join(_fold_cell(replace(column, breaks_words=True), Text(column.name), width))
            drawn.add_column(name, justify="right" if column.kind == "numbers" else "left", width=width, no_wrap=True)
        for row in self.table.rows:
            texts = (link_locations(Text(cell.text, style=STYLES[cell.style])) for cell in row)
            columns = zip(self.table.columns, texts, widths, strict=True)
            drawn.add_row(*(Text("\n").join(_fold_cell(*column)) for column in columns))
        return drawn

    def render_narrow(self) -> Iterator[RenderableType]:
        width = max(map(cell_len, self.table.names)) + GAP
        for i, row in enumerate(self.table.rows):
            yield from [Text()] if i else []
            for name, cell in zip(self.table.names, row, strict=True):
                if cell.text:
                    text = Text(cell.text, style=STYLES[cell.style])
                    yield _Labelled(Text(name, style="dim"), text, width) if width > GAP else Folded(text)


def _widest(texts: Sequence[str]) -> int:
    return max((cell_len(line) for text in texts for line in text.split("\n")), default=0)


def _with_gaps(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _longest(column: TableColumn, texts: Sequence[str]) -> int:
    """The widest text that has to stay whole: a word, or all of a column that never folds. A name of a column may be
    broken."""
    if column.least_width is None:
        return _widest(texts)
    return 0 if column.breaks_words or column.is_cut else longest_word(texts)


def _fold_cell(column: TableColumn, text: Text, width: int) -> Iterator[Text]:
    if column.is_cut:
        for line in text.split(allow_blank=True):
            yield line if line.cell_len <= width else Text(cut_middle(line.plain, width), line.style)
        return
    for line in break_lines(text, width):
        yield from break_word(line, width) if column.breaks_words else (line,)


# Break lines only between words: a path, a name, or a number with its unit stays together.

_UNIT = r"(?:[nµm]?s|min|h|[kKMGTP]?i?B|[kMGTP]?FLOP)\b|%"
# Each of 1.5 ms, ± 2 %, and 1.0 – 1.2 is one word.
_WORD = re.compile(rf"(?:\S|(?<=\d) (?={_UNIT}|– )|(?<=[±≥≤<>~–]) (?=\d))+")
_LOCATION = re.compile(r"(?<![\w/.~-])([\w/.~+@=-]*[\w+-]\.\w+):(\d+)\b")
LEAST_FOLDED = 10
"""Text next to something gets at least this width, even in a narrow window."""


def longest_word(texts: Iterable[str]) -> int:
    """In columns of a terminal."""
    return max((cell_len(word) for text in texts for word in _WORD.findall(text)), default=0)


def break_lines(text: Text, width: int) -> Iterator[Text]:
    """`text` in lines of `width` columns, or of one word that is wider."""
    for line in text.split(allow_blank=True):
        line.expand_tabs(8)
        for part in line.divide(_breaks(line.plain, width)):
            part.rstrip()
            yield _keep_whole(part)


_JOINT = re.compile(r"(?<=[/;,])|(?=\[)")
"""Where a path of files, scopes or a pytree is broken best."""


def break_word(line: Text, width: int) -> Iterator[Text]:
    """Splits a line of one word into pieces that fit the width, at joints of a path if it has some."""
    while line.cell_len > width:
        fits = next(i for i in range(len(line.plain), 0, -1) if i == 1 or cell_len(line.plain[:i]) <= width)
        joints = [found.start() for found in _JOINT.finditer(line.plain) if fits // 2 < found.start() <= fits]
        piece, line = line.divide([joints[-1] if joints else fits])
        yield _keep_whole(piece)
    yield _keep_whole(line)


def _keep_whole(line: Text) -> Text:
    line.no_wrap, line.overflow = True, "ignore"
    return line


def fold_text(text: str, width: int) -> str:
    return "\n".join(line.plain for line in break_lines(Text(text), width))


def _breaks(line: str, width: int) -> list[int]:
    """Where a new line begins."""
    found: list[int] = []
    begin = 0
    for word in _WORD.finditer(line):
        if word.start() > begin and cell_len(line[begin : word.end()]) > width and line[begin : word.start()].strip():
            found.append(begin := word.start())
    return found


def link_locations(text: Text) -> Text:
    """`text`, in which each file with a line leads to the file."""
    for found in _LOCATION.finditer(text.plain):
        file = Path(found[1]).expanduser()
        if file.is_file():
            text.stylize(f"link {file.absolute().as_uri()}", found.start(), found.end())
    return text


class Folded:
    """A text that is broken by the width of the console; what its lines begin with is not text of it."""

    def __init__(self, text: Text, first: Text | None = None, indent: str = "") -> None:
        """`first` precedes the first line and is as wide as `indent`, which precedes the other lines."""
        self.text, self.indent = text, indent
        self.first = Text(indent) if first is None else first

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterable[RenderableType]:
        width = max(options.max_width - cell_len(self.indent), LEAST_FOLDED)
        for i, line in enumerate(break_lines(link_locations(self.text), width)):
            yield Text.assemble(Text(self.indent) if i else self.first, line, no_wrap=True, overflow="ignore")
