"""Renders documents for a terminal, as lines of rich's `Text`: colours that respect NO_COLOR, tables that fit narrow
windows, and plain text for pipes.

Only `to_printed` asks whether there is a terminal; for commands `cli/console.py` does.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise, product, zip_longest
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.text import Text

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
    rewrite,
    tabulate_outline,
)
from benchax.reporting.tables import cut_middle, truncate

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


def highlight(language: str, line: str) -> Text:
    colored = Text(line)
    for pattern, style in _COLORS.get(language, ()):
        colored.highlight_regex(pattern, style)
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


def render(document: Document, width: int) -> Text:
    """For a console, which prints it as it is: lines of programs, and words, may be longer than a window."""
    return Text("\n").join(_render_blocks(_prepare(document), width))


def to_text(document: Document, width: int | None = None) -> str:
    """Plain text without colours: 100 wide, or as wide as its widest table, where `width` is not given."""
    # Plain text shows no colours, so don't parse programs for them.
    blocks = [replace(block, language="") if isinstance(block, Code) else block for block in _prepare(document)]
    tables = [_with_gaps(_list_widths(block)) for block in blocks if isinstance(block, Table)]
    wide = max(LEAST_WIDTH, *tables, 0) if width is None else width
    return "\n".join(line.plain for line in _render_blocks(blocks, wide))


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


def _render_blocks(blocks: Sequence[Shown], width: int) -> Iterator[Text]:
    for before, block in pairwise((None, *blocks)):
        level = before.level if isinstance(before, Heading) else None
        # After the title of a document comes a sentence about all of it, or its first part.
        is_apart = level is None or isinstance(block, Heading) or (level == 1 and not isinstance(block, Paragraph))
        if before and is_apart:
            yield Text()
        if block:
            yield from _render_block(block, "  " if level == 2 else "", width)


def _render_block(block: Shown, indent: str, width: int) -> Iterator[Text]:
    """`indent`: of a sentence, which belongs to the heading above it."""
    match block:
        case Heading():
            yield from _render_heading(block, width)
        case Paragraph():
            yield from fold(Text(block.text, STYLES[block.style]), width, indent)
        case List():
            yield from chain.from_iterable(_render_block(item, indent, width) for item in block.items)
        case Table():
            yield from _render_table(block, width)
        case Facts():
            yield from (_render_facts if block.kind == "numbers" else _render_words)(block.sections, width)
        case Remarks():
            for remark in block.remarks:
                mark, style = MARKS[remark.severity]
                message = Text(remark.message, STYLES[style] if remark.severity == "error" else "")
                yield from fold(message, width, "    ", Text.assemble("  ", (mark, STYLES[style]), " "))
        case Code():  # lines stay as long as they are: a window breaks them, or a pipe does not
            yield from _render_title(block.title)
            yield from (highlight(block.language, line) for line in block.text.split("\n"))
        case Sparkline():
            yield from fold(Text(f"{block.bars}  {block.caption}"), width)
        case Chart():  # what it shows stands in tables, too
            yield from fold(Text(show_controls(f"chart: {block.caption}"), "dim"), width)


def _render_heading(heading: Heading, width: int) -> Iterator[Text]:
    answers = heading.answers
    if answers and cell_len(heading.text) <= LONGEST_BESIDE and "\n" not in heading.text:
        answers = (replace(answers[0], label=heading.text), *answers[1:])
    else:
        aside = f"  {heading.aside}" if heading.aside else ""
        yield from fold(Text.assemble((heading.text, f"bold {STYLES[heading.style]}"), (aside, "dim")), width)
    if answers:
        yield from _render_facts((Section("", answers),), width, indent="")
    for text in heading.below:
        yield from fold(Text(text if len(text) <= ENDLESS else truncate(text, width), "dim"), width)


# ---- facts ------------------------------------------------------------------------------------------------------


def _render_facts(sections: Sequence[Section], width: int, indent: str = "  ") -> Iterator[Text]:
    """Three columns, which line up across all sections; or stacked if that is too narrow."""
    rows = [row for section in sections for row in section.rows]
    label = max((len(row.label) for row in rows), default=0)
    value = max((len(row.value) for row in rows), default=0)
    word = longest_word(row.detail for row in rows)
    # Before each detail come the label, indented by two, and the value, each followed by a gap.
    is_narrow = width < max(NARROW, label + value + max(LEAST_DETAIL, 2 + 2 * GAP + word))
    for i, section in enumerate(sections):
        if i:
            yield Text()
        yield from _render_title(section.title)
        for row in section.rows:
            style = STYLES[row.style]
            is_quiet = row.style in ("", "bad", "faint")
            detail = Text(row.detail, STYLES[row.style or "faint"] if is_quiet else "")
            if is_narrow:
                line = Text.assemble((row.label + "  ", style), (row.value, style or "cyan"))
                yield from fold(line, width, "    ", Text("  "))
                yield from fold(detail, width, "    ") if row.detail else ()
            else:
                name, number = row.label.ljust(label), row.value.rjust(value)
                line = Text.assemble(indent, (name, style), " " * GAP, (number, style or "cyan"), " " * GAP)
                yield from fold(detail, width, " " * line.cell_len, line)


def _render_title(title: str) -> list[Text]:
    return [Text(title, "bold")] if title else []


def _render_words(sections: Sequence[Section], width: int) -> Iterator[Text]:
    """Renders sections whose values are texts, next to their labels."""
    for i, section in enumerate(sections):
        if i:
            yield Text()
        yield from _render_title(section.title)
        label = max((cell_len(row.label) for row in section.rows), default=0)
        for row in section.rows:
            text = Text(row.value, STYLES[row.style]) + Text(f"  {row.detail}" if row.detail else "", "dim")
            yield from _render_labelled(Text(f"  {row.label}", "dim"), text, label + 2 + GAP, width)


def _render_labelled(label: Text, text: Text, start: int, width: int) -> Iterator[Text]:
    """A text next to its label, or below it if the label leaves no room for a word of the text.

    Args:
        start: where a text next to the label begins.
    """
    if start + max(LEAST_WIDTH_BESIDE, longest_word([text.plain])) <= width:
        label.pad_right(start - label.cell_len)
        yield from fold(text, width, " " * start, label)
    else:
        indent = label.cell_len - len(label.plain.lstrip())
        yield from fold(label, width)
        yield from fold(text, width, " " * (indent + 2))


# ---- tables -----------------------------------------------------------------------------------------------------


def _render_table(table: Table, width: int) -> Iterator[Text]:
    """As columns that can fold or be left out, or row by row."""
    hidden: list[str] = []
    while _find_readable(table) > width and (optional := [i for i, c in enumerate(table.columns) if c.is_optional]):
        hidden.insert(0, table.names[optional[-1]])
        table = table.with_columns(set(range(len(table.columns))) - {optional[-1]})
    widths = _fit(table, width)
    yield from _render_columns(table, widths) if widths else _render_cards(table, width)
    for note in (table.note, f"Hidden at this width: {', '.join(hidden)}." if hidden else ""):
        yield from fold(Text(note, "dim"), width) if note else ()


def _list_widths(table: Table) -> list[int]:
    return [_widest(texts) for texts in zip(table.names, *table.lines, strict=True)]


def _find_readable(table: Table) -> int:
    """At this width nothing folds, and only very long names are cut."""
    columns = zip(table.columns, _list_widths(table), strict=True)
    return _with_gaps([min(width, LONGEST_NAME) if column.is_cut else width for column, width in columns])


def _fit(table: Table, room: int) -> list[int]:
    """Widths that fill the room: heads fold and names are cut first, then the widest columns fold. A word of a head is
    broken only if nothing else helps. Empty if there is no room for the columns."""
    texts = list(zip(table.names, *table.lines, strict=True))
    widths = _list_widths(table)
    least = [
        min(width, max(column.least_width or 0, _longest(column, parts[1:])))
        for column, width, parts in zip(table.columns, widths, texts, strict=True)
    ]
    heads = [longest_word([name]) for name in table.names]
    columns = zip(table.columns, texts, least, heads, strict=True)
    cut_alone = [low if column.is_cut else max(_widest(parts[1:]), head) for column, parts, low, head in columns]
    for least_widths, most in product((cut_alone, list(map(max, least, heads)), least), range(room, 0, -1)):
        fitted = [max(low, min(width, most)) for width, low in zip(widths, least_widths, strict=True)]
        if _with_gaps(fitted) <= room:
            return fitted
    return []


def _render_columns(table: Table, widths: Sequence[int]) -> Iterator[Text]:
    heads = [replace(column, breaks_words=True) for column in table.columns]
    if any(table.names):
        yield from _render_row(heads, [Text(name, "bold") for name in table.names], widths, ends_below=True)
    for row in table.rows:
        texts = [link_locations(Text(cell.text, STYLES[cell.style])) for cell in row]
        yield from _render_row(table.columns, texts, widths)


def _render_row(
    columns: Sequence[TableColumn], texts: Sequence[Text], widths: Sequence[int], ends_below: bool = False
) -> Iterator[Text]:
    """`ends_below`: cells with fewer lines end, not begin, where the others do."""
    order = -1 if ends_below else 1
    cells = (list(_fold_cell(*cell))[::order] for cell in zip(columns, texts, widths, strict=True))
    for parts in list(zip_longest(*cells, fillvalue=Text()))[::order]:
        line = Text()
        for column, part, width in zip(columns, parts, widths, strict=True):
            space = " " * (width - part.cell_len)
            line.append_text(Text(space) + part if column.kind == "numbers" else part + Text(space))
            line.append(" " * GAP)
        line.rstrip()
        yield line


def _render_cards(table: Table, width: int) -> Iterator[Text]:
    beside = max(map(cell_len, table.names)) + GAP
    for i, row in enumerate(table.rows):
        if i:
            yield Text()
        for name, cell in zip(table.names, row, strict=True):
            text = Text(cell.text, STYLES[cell.style])
            if cell.text:
                yield from _render_labelled(Text(name, "dim"), text, beside if beside > GAP else 0, width)


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


def fold(text: Text, width: int, indent: str = "", first: Text | None = None) -> Iterator[Text]:
    """`text` in lines of this width.

    Args:
        indent: precedes each line.
        first: precedes the first line instead, and is as wide.
    """
    room = max(width - cell_len(indent), LEAST_FOLDED)
    for i, line in enumerate(break_lines(link_locations(text), room)):
        whole = Text.assemble(Text(indent) if i or first is None else first, line)
        whole.rstrip()
        yield whole


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
            yield part


_JOINT = re.compile(r"(?<=[/;,])|(?=\[)")
"""Where a path of files, scopes or a pytree is broken best."""


def break_word(line: Text, width: int) -> Iterator[Text]:
    """Splits a line of one word into pieces that fit the width, at joints of a path if it has some."""
    while line.cell_len > width:
        fits = next(i for i in range(len(line.plain), 0, -1) if i == 1 or cell_len(line.plain[:i]) <= width)
        joints = [found.start() for found in _JOINT.finditer(line.plain) if fits // 2 < found.start() <= fits]
        piece, line = line.divide([joints[-1] if joints else fits])
        yield piece
    yield line


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
