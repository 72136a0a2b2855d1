"""A figure as plain data, before a renderer draws it: two axes, and the marks between them.

A module of this folder decides where each mark goes and what it means. `figures.py` draws the marks with matplotlib:
into a file, or as a block of a `Document` on a page. Numbers are seconds, bytes, counts and ratios, as everywhere. A
style names a meaning (good, bad, faint), as in all blocks; each renderer has its own colours. A page draws the same
charts so that they answer to pointers and keys (`html.py`).

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

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from benchax.model import Severity
from benchax.units import count, seconds, size

Style = Literal["", "good", "bad", "warning", "info", "faint", "title"]
"""The meaning of a text or a mark. A terminal, a page and a figure have their own colours for it."""
MARKS: dict[Severity, tuple[str, Style]] = {"error": ("✗", "bad"), "warning": ("!", "warning"), "info": ("·", "faint")}
"""The marks of remarks."""
Quantity = Literal["seconds", "bytes", "flop", "change", ""]
"""How an axis shows a number. A change is a ratio: 1.05 is +5 %."""
Symbol = Literal["circle", "diamond", "left", "right"]


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
    intervals: tuple[tuple[float, float] | None, ...] = ()
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
    if quantity == "seconds":
        return seconds(value, digits)
    if quantity == "bytes":
        return size(value, digits)
    if quantity == "change":
        share = round(100 * (value - 1), 3)
        return f"{'+' if share > 0 else ''}{share:g} %"
    return count(value, "FLOP" if quantity == "flop" else "", digits)


# Trees from paths: what is made of many parts, each of which says where it belongs.


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


# A heat map knows nothing of grids: squares come with a time in seconds or a status.

STATUS_STYLES: dict[str, Style] = {
    "timeout": "warning", "crashed": "bad", "error": "bad", "out_of_memory": "bad", "wrong_shape": "info",
}  # fmt: skip


@dataclass(frozen=True)
class Square:
    value_s: float | None
    """None: see `status`."""
    status: str = "ok"


def chart_heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    squares: Sequence[Sequence[Square]],
    *,
    x_title: str = "",
    title: str = "",
) -> Chart:
    """One line of squares per row."""
    named = [[("" if s.value_s is not None else s.status.replace("_", " ")) for s in line] for line in squares]
    cells = Cells(
        tuple(tuple(square.value_s for square in line) for line in squares),
        tuple(map(tuple, named)),
        tuple(tuple(STATUS_STYLES.get(square.status, "faint") for square in line) for line in squares),
    )
    return Chart(name_places(columns, x_title), name_places(rows), (cells,), title)


def name_places(names: Sequence[str], title: str = "") -> Axis:
    return Axis(title, are_names=True, ticks=tuple(AxisTick(i, name) for i, name in enumerate(names)))
