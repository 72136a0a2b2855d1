"""The content of a result, before a renderer draws it: headings, sentences, tables, facts, remarks, code, bars and
charts.

Plain data. A module of this folder turns one kind of result into a `Document`, without knowing the renderers.
`terminal`, `html` and `markdown` each render every block, without knowing the results. All texts are plain text: no
renderer interprets markup in them, so a name from an untrusted source stays a name. A style names a meaning (bad,
faint); each renderer has its own colours.

A chart is axes and marks as plain data. Each function that makes one decides where each mark goes and what it means.
`figures.py` draws the marks with matplotlib: into a file, or as a block of a notebook. A page draws the same charts so
that they answer to pointers and keys (`html.py`). Numbers are seconds, bytes, counts and ratios, as everywhere.

    Points         values with their intervals: of samples, of commits, of comparisons one below the other
    Line           straight from one place to the next: a level, a series over sizes
    Bars           from one value to another: of a histogram, of consecutive stages, of a thread's calls
    ReferenceLine  across the whole chart: no change, a limit, a change, a break
    Shade          a stretch of an axis: what is called the same
    Note           a word for a place without a mark
    Cells          a heat map
    Tree           what a whole is made of, as areas inside one another
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar, cast, get_args

from benchax.json_values import decode_value, encode_value
from benchax.model import Remark, Severity
from benchax.units import count, seconds, size

T = TypeVar("T")
Style = Literal["", "good", "bad", "warning", "info", "faint", "title"]
"""The meaning of a text or a mark. A terminal, a page and a figure have their own colours for it."""
MARKS: dict[Severity, tuple[str, Style]] = {"error": ("✗", "bad"), "warning": ("!", "warning"), "info": ("·", "faint")}
"""The marks of remarks."""
Quantity = Literal["seconds", "bytes", "flop", "count", "change", ""]
"""How an axis shows a number. A change is a ratio: 1.05 is +5 %. Counts are whole numbers."""
Symbol = Literal["circle", "diamond", "left", "right"]


@dataclass(frozen=True)
class Heading:
    """The title of a document (level 1) or of a part of it."""

    text: str
    level: Literal[1, 2] = 2
    below: tuple[str, ...] = ()
    """Faint lines, such as the machine and the inputs of the measurement."""
    aside: str = ""
    """Faint, on the same line: a file and its line."""
    style: Style = ""
    answers: tuple[TextRow, ...] = ()
    """The result in a few rows without labels. A terminal shows the first one on the line of the title."""


@dataclass(frozen=True)
class Paragraph:
    """Sentences; line breaks are kept."""

    text: str
    style: Style = ""


@dataclass(frozen=True)
class List:
    """One thought a line, without space between them."""

    items: tuple[Paragraph, ...]


@dataclass(frozen=True)
class TableColumn:
    name: str
    """Columns that all have none make a table without a head."""
    kind: Literal["numbers", "words", "names"] = "numbers"
    """Numbers end at the right; words and names begin at the left, and names are written as code where that exists."""
    least_width: int | None = None
    """A narrow window can fold the texts of this column down to this width. None: it never folds them."""
    breaks_words: bool = False
    """There a word that is wider than that goes on in the next line; else it makes the table fall apart into lines."""
    is_cut: bool = False
    """There a text that is wider than that is cut in its middle: a row stays one line."""
    is_optional: bool = False
    """A narrow window leaves this column out and names it below the table; the last one first."""


@dataclass(frozen=True)
class TableCell:
    text: str
    style: Style = ""
    hint: str = ""
    """More about it, for those who point at it on a page; a terminal has no room for it."""
    link: str = ""
    """Where it leads to, as seen from its page."""


@dataclass(frozen=True)
class Table:
    columns: tuple[TableColumn, ...]
    rows: tuple[tuple[TableCell, ...], ...]
    note: str = ""
    """A line below it: what its numbers are, or what it leaves out."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def lines(self) -> tuple[tuple[str, ...], ...]:
        """The texts alone."""
        return tuple(tuple(cell.text for cell in row) for row in self.rows)

    def without_empty_columns(self, kept: Iterable[int] = ()) -> Table:
        """Columns that no row fills say nothing; those at the places `kept` stay anyway."""
        return self.with_columns({*kept, *(i for row in self.rows for i, cell in enumerate(row) if cell.text)})

    def with_columns(self, places: Collection[int]) -> Table:
        """Only the columns at these places, in the order of the table."""
        columns = tuple(column for i, column in enumerate(self.columns) if i in places)
        rows = tuple(tuple(cell for i, cell in enumerate(row) if i in places) for row in self.rows)
        return replace(self, columns=columns, rows=rows)


@dataclass(frozen=True)
class TextRow:
    """One line: a label, a value, and a detail next to it."""

    label: str
    value: str
    detail: str = ""
    style: Style = ""


@dataclass(frozen=True)
class Section:
    title: str
    rows: tuple[TextRow, ...] = ()


@dataclass(frozen=True)
class Facts:
    """Labelled values, with the columns aligned across all sections."""

    sections: tuple[Section, ...]
    kind: Literal["numbers", "words"] = "numbers"
    """Words may be long: they fold."""


@dataclass(frozen=True)
class Remarks:
    """Each with the mark of its severity."""

    remarks: tuple[Remark, ...]


@dataclass(frozen=True)
class Code:
    """Text of a program. Its lines are never broken, and nothing in it is changed."""

    language: str
    """jaxpr, stablehlo, hlo, diff or python."""
    text: str
    title: str = ""
    """A page shows only this until it is unfolded."""


BARS = "▁▂▃▄▅▆▇█"
BREAK, MISSING = "┊", "·"
LEAST_SPAN = 1.1
"""The greatest bar of a sparkline stands for this many times the least, or more: noise must not look like mountains."""


@dataclass(frozen=True)
class Sparkline:
    """Positive values in order, as a line of bars. A terminal, a pipe and a table's cell can hold them. The scale is
    logarithmic unless `is_linear` asks for a linear one."""

    values: tuple[float | None, ...]
    """None: not measured."""
    caption: str = ""
    breaks: tuple[int, ...] = ()
    """Places from which on values are of another machine."""
    is_linear: bool = False
    """Bars begin at 0, and are as high as their share of the greatest value."""

    @property
    def bars(self) -> str:
        """▁▂▅┊█"""
        return draw_bars(self.heights, self.breaks)

    @property
    def heights(self) -> list[float | None]:
        """Heights from 0 (the smallest value) to 1 (the largest). A value that is not a positive number has height
        0."""
        if self.is_linear:
            highest = max((v for v in self.values if v), default=1.0)
            return [None if v is None else v / highest for v in self.values]
        logs = [math.log(v) for v in self.values if v is not None and v > 0] or [0.0]
        least, greatest = min(logs), max(logs)
        missing = max(0.0, math.log(LEAST_SPAN) - (greatest - least)) / 2
        low, span = least - missing, greatest - least + 2 * missing
        return [None if v is None else (math.log(v) - low) / span if v > 0 else 0.0 for v in self.values]


def draw_bars(heights: Iterable[float | None], breaks: Collection[int] = ()) -> str:
    """Draws a bar for each height from 0 to 1, ┊ before the places of `breaks`, and · for a missing value."""
    bars = [MISSING if h is None else BARS[min(len(BARS) - 1, int(h * len(BARS)))] for h in heights]
    return "".join((BREAK if i in breaks and i > 0 else "") + bar for i, bar in enumerate(bars))


@dataclass(frozen=True)
class OutlineColumn:
    name: str
    quantity: Quantity = ""


@dataclass(frozen=True)
class OutlineEntry:
    """A box."""

    name: str
    kind: str = ""
    """Its kind, in a word: scope, loop, dot."""
    values: tuple[float | None, ...] = ()
    """One for each column. None: not known; 0 is not written."""
    detail: str = ""
    source: str = ""
    """file.py:12"""
    parts: tuple[OutlineEntry, ...] = ()
    key: int | None = None
    """By which others name it in `reads`."""
    reads: tuple[int, ...] = ()


@dataclass(frozen=True)
class Outline:
    caption: str
    columns: tuple[OutlineColumn, ...]
    entries: tuple[OutlineEntry, ...]
    note: str = ""


# ---- charts ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AxisTick:
    at: float
    text: str
    style: Style = ""


@dataclass(frozen=True)
class Axis:
    title: str = ""
    quantity: Quantity = ""
    is_log: bool = False
    ends: tuple[float, float] | None = None
    """The chart cuts off everything beyond these limits. None: the axis reaches as far as the marks."""
    ticks: tuple[AxisTick, ...] = ()
    """If empty, the renderer chooses them."""
    are_names: bool = False
    """Ticks are names of the places 0, 1, 2, … from the left, or from the top; where they are many, of some."""


@dataclass(frozen=True)
class Points:
    """Values at places: along y the values are the heights, along x the places are."""

    places: tuple[float, ...]
    values: tuple[float | None, ...]
    """None: not measured. It is marked at the edge of the axis, never at a number."""
    lows: tuple[float | None, ...] = ()
    """The ends of the values' intervals. None: there is no interval."""
    highs: tuple[float | None, ...] = ()
    along: Literal["x", "y"] = "y"
    label: str = ""
    style: Style = ""
    symbol: Symbol = "circle"
    is_hollow: bool = False
    """The value is indistinguishable from its neighbours, or from 1."""
    texts: tuple[str, ...] = ()
    """A description of each mark, which a page shows under the pointer. Empty: the page shows only its numbers."""


@dataclass(frozen=True)
class Bars:
    """Rectangles between two values of one axis, at places of the other."""

    places: tuple[float, ...]
    lows: tuple[float, ...]
    highs: tuple[float, ...]
    along: Literal["x", "y"] = "y"
    """The axis of the values."""
    thickness: float = 0.8
    """In units of the places."""
    label: str = ""
    style: Style = ""
    texts: tuple[str, ...] = ()
    """A description of each mark. The chart writes it next to the mark if there is room, and a page shows it under the
    pointer."""


@dataclass(frozen=True)
class Line:
    x: tuple[float, ...]
    y: tuple[float, ...]
    label: str = ""
    style: Style = ""


@dataclass(frozen=True)
class ReferenceLine:
    """A line across the chart at a place of one axis."""

    axis: Literal["x", "y"]
    at: float
    kind: Literal["line", "change", "break"] = "line"
    label: str = ""
    style: Style = ""


@dataclass(frozen=True)
class Shade:
    """A stretch of one axis, across the chart and behind all else."""

    axis: Literal["x", "y"]
    low: float
    high: float


@dataclass(frozen=True)
class Note:
    x: float
    y: float
    text: str
    style: Style = ""


@dataclass(frozen=True)
class Cells:
    """A square for each row and column, coloured by the logarithm of its value; hatched and named where it has none."""

    values: tuple[tuple[float | None, ...], ...]
    words: tuple[tuple[str, ...], ...]
    """The reason why a value is missing; empty for cells that have a value."""
    styles: tuple[tuple[Style, ...], ...]


@dataclass(frozen=True)
class Branch:
    """A part of a tree."""

    name: str
    value: float
    """The total of the area: at least the sum of its parts. The rest belongs to the area itself."""
    parts: tuple[Branch, ...] = ()
    detail: str = ""


@dataclass(frozen=True)
class Tree:
    """Areas inside one another, each as large as its value."""

    roots: tuple[Branch, ...]
    quantity: Quantity = "seconds"


Mark = Points | Bars | Line | ReferenceLine | Shade | Note | Cells | Tree


@dataclass(frozen=True)
class Chart:
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    title: str = ""
    beside: tuple[AxisTick, ...] = ()
    """Numbers to the right of each name, if there is room for them."""
    has_legend: bool = False
    """The chart has a legend, because nothing else explains the marks."""
    has_series: bool = False
    """Marks without a style get a colour by their label, and the legend lists these colours."""
    note: str = ""
    """A sentence below it: what it leaves out."""
    is_broad: bool = False
    """The chart takes the whole width of a page. Otherwise a page shows two charts side by side."""

    @property
    def caption(self) -> str:
        """Describes the chart in words, for places that cannot show it."""
        return " · ".join((self.title or self.x.title or self.y.title).split("\n"))

    @property
    def places(self) -> int:
        """How many values it is to have room for."""
        return sum(len(mark.places) for mark in self.marks if isinstance(mark, Points))


def describe_value(value: float, quantity: Quantity, digits: int = 3) -> str:
    """As it stands at a tick: 20 µs; 1.00 MiB; +5 %."""
    if quantity == "change":
        share = round(100 * (value - 1), 3)
        return f"{'+' if share > 0 else ''}{share:g} %"
    write = {"seconds": seconds, "bytes": size, "flop": partial(count, what="FLOP")}.get(quantity, count)
    return write(value, digits=digits)


# Builds trees from paths: the parts of a whole, each with its place.


def grow(leaves: Iterable[tuple[Sequence[str], float, str]]) -> tuple[Branch, ...]:
    """Adds up (path from the root, value, detail); what has no value is left out."""
    inside: dict[str, list[tuple[Sequence[str], float, str]]] = {}
    for path, value, detail in leaves:
        if path and value > 0:
            inside.setdefault(path[0], []).append((path[1:], value, detail))
    details = {name: [detail for path, _, detail in listed if not path] for name, listed in inside.items()}
    return tuple(
        Branch(name, sum(value for _, value, _ in listed), grow(listed), "".join(details[name][-1:]))
        for name, listed in inside.items()
    )


def place_points(placed: Iterable[tuple[float, float | None, float | None, float | None]], **look: Any) -> Points:
    """Points of (place, value, ends of its interval), at least one."""
    places, values, lows, highs = zip(*placed, strict=True)
    return Points(places, values, lows, highs, **look)


def name_places(names: Sequence[str], title: str = "") -> Axis:
    return Axis(title, are_names=True, ticks=tuple(AxisTick(i, name) for i, name in enumerate(names)))


# ---- documents -------------------------------------------------------------------------------------------------------


Block = Heading | Paragraph | List | Table | Facts | Remarks | Code | Sparkline | Chart | Outline


@dataclass(frozen=True)
class Document:
    blocks: tuple[Block, ...]

    @property
    def title(self) -> str:
        """Its first heading; empty without one."""
        return next((block.text for block in self.blocks if isinstance(block, Heading)), "")


def rewrite(part: T, change: Callable[[Any], Any]) -> T:
    """The part of a document with all that `change` changes in it. Where it returns None, its parts are next."""
    if (changed := change(part)) is not None:
        return changed
    if isinstance(part, tuple):
        return cast("T", tuple(rewrite(each, change) for each in cast("tuple[Any, ...]", part)))
    if not is_dataclass(part) or isinstance(part, type):
        return part
    return replace(part, **{f.name: rewrite(getattr(part, f.name), change) for f in fields(part)})


def list_parts(title: str, documents: Sequence[Document], overview: Table | None = None) -> tuple[Document, ...]:
    """For a page of several: an overview first, each line leading to its part. One alone is the page's own.

    Args:
        overview: its first column has the titles of the parts; None: it has their titles alone.
    """
    if len(documents) == 1:
        return tuple(documents)
    names = overview or tabulate([TableColumn("", "names")], [(part.title,) for part in documents])
    return (Document((Heading(title, 1), names)), *documents)


def tabulate(
    columns: Sequence[TableColumn | str],
    lines: Iterable[Sequence[str]],
    styles: Sequence[Style] | None = None,
    note: str = "",
) -> Table:
    """A table of texts.

    Args:
        columns: a name alone is a column of numbers.
        styles: one for each line; None: all plain.
    """
    typed = tuple(TableColumn(column) if isinstance(column, str) else column for column in columns)
    listed = [tuple(line) for line in lines]
    plain: list[Style] = [""] * len(listed)
    by_row = zip(listed, styles or plain, strict=True)
    rows = tuple(tuple(TableCell(text, style) for text in line) for line, style in by_row)
    return Table(typed, rows, note)


def list_lines(lines: Iterable[str], style: Style = "") -> tuple[List, ...]:
    """Returns a list whose items all have one style, or nothing if there are no lines."""
    items = tuple(Paragraph(line, style) for line in lines)
    return (List(items),) if items else ()


def list_remarks(remarks: Iterable[Remark]) -> tuple[Heading | Remarks, ...]:
    """Returns remarks under a separate heading, or nothing if there are no remarks."""
    listed = tuple(remarks)
    return (Heading("remarks"), Remarks(listed)) if listed else ()


# An outline as a table, for media that cannot unfold it: a terminal, Markdown, a notebook, paper.

UNKNOWN = "not known"
INDENT = "> "
MOST_ROWS = 60


def tabulate_outline(outline: Outline) -> Table:
    """Makes a table, for media that cannot unfold an outline. It has whole levels as long as they fit, and as many
    of the outermost boxes as fit."""
    boxes, left_out = list(_walk(outline.entries[:MOST_ROWS], 0)), len(outline.entries) - MOST_ROWS
    depths = sorted(depth for depth, _ in boxes)
    deepest = depths[MOST_ROWS] - 1 if len(depths) > MOST_ROWS else max(depths, default=0)
    lines = [_describe_row(outline, *box, deepest) for box in boxes if box[0] <= deepest]
    note = f"{outline.note} {left_out} other boxes are not in this table." if left_out > 0 else outline.note
    names = (TableColumn("box", "words", 24), *(TableColumn(column.name) for column in outline.columns))
    columns = (*names, TableColumn("where", "words", 16), TableColumn("what", "words", 24))
    return tabulate(columns, lines, note=note).without_empty_columns(kept=(0,))


def _describe_row(outline: Outline, depth: int, entry: OutlineEntry, deepest: int) -> tuple[str, ...]:
    """A box at the deepest listed level says how many are inside of it."""
    inside = len(list(_walk(entry.parts, 0))) if depth == deepest else 0
    numbers = (
        UNKNOWN if value is None else describe_value(value, column.quantity) if value else ""
        for value, column in zip(entry.values, outline.columns, strict=True)
    )
    what = " · ".join(filter(None, (entry.detail, f"{inside} boxes inside" if inside else "")))
    return (f"{INDENT * depth}{entry.kind} {entry.name}".strip(), *numbers, entry.source, what)


def _walk(entries: Sequence[OutlineEntry], depth: int) -> Iterator[tuple[int, OutlineEntry]]:
    for entry in entries:
        yield depth, entry
        yield from _walk(entry.parts, depth + 1)


# Documents as JSON, for a process that waits for another one's: blocks with the names of their types.

KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Block)}


def encode_document(document: Document) -> list[list[Any]]:
    return [[type(block).__name__, encode_value(block, type(block))] for block in document.blocks]


def decode_document(coded: list[list[Any]]) -> Document:
    """Inverse of `encode_document`, of the same benchax."""
    return Document(tuple(decode_value(block, KINDS[name]) for name, block in coded))


# ---- in Python -------------------------------------------------------------------------------------------------------
#
# The advice of a document, in the words of the library: functions have options instead of the command line's flags.
# Reasons and remarks are stored once and read in two places. On the command line they name flags; in Python they name
# the arguments of a call.

_WORDS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(flag), python)
    for flag, python in (
        # If both are given, one is enough.
        (r"--no-jit \(jit=False\)|jit=False, --no-jit|--no-jit", "jit=False"),
        (r"--timeout, timeout_s=", "timeout_s="),
        (r"--store or store=", "store="),
        (r"--timer ([\w,]+)", r'timer="\1"'),
        (r"--processes (\d+)", r"processes=\1"),
        (r"--resolution ([\d.]+%)", r'resolution="\1"'),
        (r"--cold-process", "cold_process=True"),
        (r"--max-time", "max_time_s="),
        (r"--timeout", "timeout_s="),
        (r"--memory-limit", "memory_limit_bytes="),
        # Without such an option, it is a command in Python, too.
        (r"--time runs it", "benchax.bench times it"),
        (r"(?<!inspect )--time\b", "benchax inspect --time"),
        (r"--json", "asdict()"),
        (r"\(-v lists them\)", "(.checked lists them)"),
        (r"\(-v says why\)", "(.not_measured says why)"),
    )
)


def in_python(document: Document) -> Document:
    """The document with each flag in a remark, a reason or a note as the option that it is in Python."""
    return rewrite(document, _translate_part)


def translate(text: str) -> str:
    for flag, python in _WORDS:
        text = flag.sub(python, text)
    return text


def _translate_part(part: Any) -> Any:
    match part:
        case Remark():
            return replace(part, message=translate(part.message))
        case TextRow():
            return replace(part, value=translate(part.value), detail=translate(part.detail))
        case Paragraph():
            return replace(part, text=translate(part.text))
        case Table():
            return replace(part, note=translate(part.note))
        case _:
            return None
