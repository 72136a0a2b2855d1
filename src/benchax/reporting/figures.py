"""Draws a `Chart` with matplotlib: a Figure, which can be saved as PNG, SVG or PDF, or SVG for a notebook. Trees are
for pages only. Knows no result.

Figures are made without pyplot: no window opens, nothing has to be closed, and no display is needed.
"""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Sequence
from typing import Any, Literal

from benchax.errors import require
from benchax.reporting.document import (
    Axis,
    Bars,
    Cells,
    Chart,
    Line,
    Mark,
    Note,
    Points,
    Quantity,
    ReferenceLine,
    Shade,
    Style,
    Symbol,
    Tree,
    describe_value,
)
from benchax.reporting.tables import cut_middle, one_line
from benchax.units import SECONDS, number, seconds_unit

# Distinguishable with any color vision (Okabe & Ito 2008). A mark or a word always repeats the meaning.
COLORS: dict[Style, str] = {
    "": "#0072b2", "good": "#009e73", "bad": "#d55e00", "warning": "#b77400", "info": "#56b4e9", "faint": "#777777",
    "title": "#000000",
}  # fmt: skip
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a7000", "#56b4e9", "#777777", "#b3261e")
"""Colours of marks without a style, by label, if a chart has series."""
SHADE = "#f0f0f0"
SYMBOLS: dict[Symbol, str] = {"circle": "o", "diamond": "D", "left": "<", "right": ">"}
ARROWS = {"x": ("$←$", "$→$"), "y": ("$↓$", "$↑$")}
"""Where an interval is cut off."""
# Keep text as text: a page can search it, and the reader's fonts have Chinese. Equal charts are equal files.
FOR_PAGES = {"svg.fonttype": "none", "svg.hashsalt": "benchax"}
NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))
_STYLE_SHEET = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)


def draw(chart: Chart) -> Any:
    """A matplotlib Figure.

    Raises:
        MissingPackage: matplotlib is not installed.
    """
    return draw_together([chart])


def draw_together(charts: Sequence[Chart]) -> Any:
    """A matplotlib Figure with the charts one below the other, all of the same width. Raises as `draw` does."""
    widths, heights = zip(*map(_size, charts), strict=True)
    figure = need("figure").Figure(figsize=(max(widths), sum(heights)), layout="constrained", dpi=130)
    parts = figure.subfigures(len(charts), height_ratios=heights, squeeze=False).ravel() if charts[1:] else [figure]
    for chart, part in zip(charts, parts, strict=True):
        _draw_into(part, chart)
    return figure


def _draw_into(canvas: Any, chart: Chart) -> None:
    axes = canvas.add_subplot()
    for mark in chart.marks:
        _draw_mark(axes, mark, chart)
    # Draw these last, because their labels go to the side with room.
    _draw_reference_lines(axes, chart)
    _draw_axes(axes, chart)
    if chart.has_legend or chart.has_series:
        handles, labels = axes.get_legend_handles_labels()
        found = dict(zip(labels, handles, strict=True))
        axes.legend(
            found.values(), found.keys(), ncols=4, loc="lower right", bbox_to_anchor=(1, 1), fontsize=7.5,
            frameon=False, handletextpad=0.1, columnspacing=1.0,
        )  # fmt: skip


def to_svg(chart: Chart) -> str:
    """An <svg> element for a page, as wide as the available room.

    Raises:
        MissingPackage: matplotlib is not installed.
    """
    written = io.StringIO()
    # A context, so that users who also draw with matplotlib keep their settings.
    with need().rc_context(FOR_PAGES), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a character that only matplotlib's own font lacks
        draw(chart).savefig(written, format="svg", metadata=NO_METADATA)
    # A style sheet inside an element applies to the whole page. On the element itself, it applies only there.
    element = _STYLE_SHEET.sub("", written.getvalue().partition("<svg ")[2])
    return f"<svg style='max-width:100%;height:auto;stroke-linejoin:round;stroke-linecap:butt' {element.rstrip()}"


def _draw_mark(axes: Any, mark: Mark, chart: Chart) -> None:
    match mark:
        case Points():
            _draw_points(axes, mark, chart)
        case Line():
            look = {"color": _color(mark, chart), "linewidth": 1.1, "alpha": 0.75, "zorder": 2}
            axes.plot(mark.x, mark.y, label=_label(mark), **look)
        case Note():
            axes.annotate(
                mark.text, (mark.x, mark.y), (6, 0), textcoords="offset points", va="center", fontsize=7.5,
                color=COLORS[mark.style], parse_math=False,
            )  # fmt: skip
        case Shade():
            span = axes.axvspan if mark.axis == "x" else axes.axhspan
            span(mark.low, mark.high, color=SHADE, linewidth=0, zorder=0)
        case Bars():
            lengths = [high - low for low, high in zip(mark.lows, mark.highs, strict=True)]
            look = {"color": _color(mark, chart), "alpha": 0.85, "label": _label(mark), "zorder": 2}
            draw_all = axes.barh if mark.along == "x" else axes.bar
            draw_all(mark.places, lengths, mark.thickness, mark.lows, **look)
        case Cells():
            _draw_cells(axes, mark)
        case ReferenceLine() | Tree():
            pass  # drawn apart, or on pages only


def _size(chart: Chart) -> tuple[float, float]:
    """In inches. Beyond the limits marks come closer: a figure of 200 inches cannot be looked at, nor drawn quickly."""
    rows, columns = len(chart.y.ticks), len(chart.x.ticks)
    if chart.x.are_names and chart.y.are_names:
        names = min(LONGEST_NAME, max(len(tick.text) for tick in chart.y.ticks)) * 0.085
        return min(40.0, max(4.0, 0.62 * columns + names + 1.4)), min(30.0, max(2.2, 0.42 * rows + 1.6))
    if chart.y.are_names:
        return 8.5, min(60.0, 0.26 * rows + 1.5)
    return min(14.0, max(6.5, 0.11 * chart.places + 2.5)), 4.4


# ---- marks ------------------------------------------------------------------------------------------------------


def _draw_points(axes: Any, points: Points, chart: Chart) -> None:
    color, swap = _color(points, chart), points.along == "x"
    known = [i for i, value in enumerate(points.values) if value is not None]
    for place, low, high in zip(points.places, points.lows, points.highs, strict=False):
        if low is not None and high is not None:
            _draw_interval(axes, points.along, place, (low, high), color, chart.x.ends if swap else chart.y.ends)
    if known:
        pairs = [points.places[i] for i in known], [points.values[i] for i in known]
        axes.plot(
            *(pairs[::-1] if swap else pairs), linestyle="none", marker=SYMBOLS[points.symbol],
            markersize=6 if swap else 3.9, markerfacecolor="white" if points.is_hollow else color, color=color,
            markeredgewidth=0.9, zorder=3, label=_label(points),
        )  # fmt: skip
    missing = [place for place, value in zip(points.places, points.values, strict=True) if value is None]
    if missing:
        # Draw at the edge, in axis fractions: a coordinate of the axis would be a number that was not measured.
        edge, other = [0.02] * len(missing), axes.get_yaxis_transform() if swap else axes.get_xaxis_transform()
        where = (edge, missing) if swap else (missing, edge)
        axes.scatter(*where, transform=other, marker="x", s=14, linewidth=0.9, color=color, label=_label(points))


def _label(mark: Points | Line | Bars) -> str:
    """matplotlib reads dollars as formulas, and hides in a legend what begins with an underscore."""
    escaped = mark.label.replace("$", r"\$")
    return f" {escaped}" if escaped.startswith("_") else escaped


def _color(mark: Points | Line | Bars, chart: Chart) -> str:
    """Returns the colour of the mark's style, or of its label for a series without a style."""
    if mark.style or not mark.label or not chart.has_series:
        return COLORS[mark.style]
    labels = dict.fromkeys(m.label for m in chart.marks if isinstance(m, Points | Line | Bars) and not m.style)
    return SERIES[list(labels).index(mark.label) % len(SERIES)]


def _draw_interval(
    axes: Any,
    along: Literal["x", "y"],
    place: float,
    interval: tuple[float, float],
    color: str,
    ends: tuple[float, float] | None,
) -> None:
    """As much as the axis holds, with an arrow where it goes on: one wild interval must not squeeze all others."""
    swap = along == "x"
    low, high = ends or (-math.inf, math.inf)
    shown = [max(interval[0], low), min(interval[1], high)]
    where = (shown, [place, place]) if swap else ([place, place], shown)
    width, alpha = (2.2, 0.55) if swap else (1.6, 0.35)
    axes.plot(*where, color=color, linewidth=width, alpha=alpha, zorder=2, solid_capstyle="butt")
    for end, edge, arrow in zip(interval, (low, high), ARROWS[along], strict=True):
        if not low <= end <= high:
            at = (edge, place) if swap else (place, edge)
            axes.plot(*([v] for v in at), marker=arrow, color=color, markersize=8, clip_on=False, linestyle="none")


def _draw_reference_lines(axes: Any, chart: Chart) -> None:
    looks: dict[str, dict[str, Any]] = {
        "line": {"linewidth": 0.9, "zorder": 1},
        "change": {"linewidth": 1.1, "linestyle": (0, (4, 2))},
        "break": {"linewidth": 3, "alpha": 0.3},
    }
    nth = 0
    for line in (mark for mark in chart.marks if isinstance(mark, ReferenceLine)):
        across = axes.axvline if line.axis == "x" else axes.axhline
        across(line.at, color=COLORS[line.style], **looks[line.kind])
        if line.label:
            # Alternate between two heights, because changes may be neighbors.
            height = 0.07 if line.kind == "break" else 0.985 - 0.105 * (nth % 2)
            nth += line.kind == "change"
            _label_reference_line(axes, line, height, chart)


def _label_reference_line(axes: Any, line: ReferenceLine, height: float, chart: Chart) -> None:
    """To the right of the line, or to the left where the chart ends."""
    low, high = chart.x.ends or axes.get_xlim()
    is_late = line.at > low + 0.8 * (high - low)
    axes.annotate(
        line.label, (line.at, height), (-4 if is_late else 4, 0), xycoords=axes.get_xaxis_transform(),
        textcoords="offset points", ha="right" if is_late else "left", va="top", fontsize=7.5,
        color=COLORS[line.style], parse_math=False,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0}, zorder=5,
    )  # fmt: skip


# ---- axes -------------------------------------------------------------------------------------------------------


def _draw_axes(axes: Any, chart: Chart) -> None:
    _draw_axis(axes.xaxis, chart.x, axes.set_xscale, axes.set_xlim)
    _draw_axis(axes.yaxis, chart.y, axes.set_yscale, axes.set_ylim)
    axes.set_xlabel(chart.x.title, fontsize=8.5, parse_math=False)
    axes.set_ylabel(chart.y.title, fontsize=8.5, parse_math=False)
    axes.set_title(chart.title, fontsize=9.5, loc="left", parse_math=False)
    if not (chart.x.are_names and chart.y.are_names):
        axes.grid(axis="x" if chart.y.are_names else "y", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)
    axes.spines[["top", "right", *(["left"] if chart.y.are_names else [])]].set_visible(False)
    if chart.x.are_names:
        turn = 90 if max((len(tick.text) for tick in chart.x.ticks), default=0) > 5 else 0
        axes.tick_params(axis="x", labelrotation=turn, labelsize=7, labelfontfamily="monospace")
    if chart.y.are_names:
        axes.set_ylim(len(chart.y.ticks) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
    if chart.beside:
        beside = axes.secondary_yaxis("right")
        beside.set_yticks([tick.at for tick in chart.beside], [tick.text for tick in chart.beside], fontsize=7.5)
        beside.tick_params(length=0, pad=8)  # room for the arrows
        beside.spines["right"].set_visible(False)
        for label, tick in zip(beside.get_yticklabels(), chart.beside, strict=True):
            label.set_color(COLORS[tick.style])


def _draw_axis(drawn: Any, axis: Axis, scale_to: Any, limit: Any) -> None:
    ticker = need("ticker")
    if axis.is_log:
        scale_to("log")
    if axis.ends is not None:
        limit(*axis.ends)
    if axis.ticks:
        ticks = axis.ticks[:: math.ceil(len(axis.ticks) / MOST_NAMES)]
        texts = [cut_middle(one_line(tick.text), LONGEST_NAME) if axis.are_names else tick.text for tick in ticks]
        drawn.set_ticks([tick.at for tick in ticks], texts, parse_math=False)
        drawn.set_minor_locator(ticker.NullLocator())
        for label, tick in zip(drawn.get_ticklabels(), ticks, strict=True):
            label.set_color(COLORS[tick.style or "title"])
    elif axis.quantity == "count":
        drawn.set_major_locator(ticker.MaxNLocator(integer=True))
    elif axis.quantity:
        drawn.set_major_formatter(_format_ticks(axis.quantity))


def _format_ticks(quantity: Quantity, digits: int = 3) -> Any:
    def describe(value: float, _: int) -> str:
        return describe_value(value, quantity, digits)

    return need("ticker").FuncFormatter(describe)


# The `Cells` of a chart: a heat map, with a number or a word in each square.

CELL_FILLS: dict[Style, str] = {"warning": "#f6c667", "bad": "#e57373"}
"""The colours of squares without a value, on which words are written; all others are pale grey."""
PALE = "#eeeeee"
MOST_NUMBERS = 1600
"""Squares up to which each shows its number; beyond that the colour must do."""
LONGEST_NAME = 36
"""Columns of a name on an axis."""
MOST_NAMES = 200
"""The most names on an axis."""


def need(module: str = "") -> Any:
    """matplotlib, or a module of it."""
    whole = require("matplotlib", doing="drawing a figure")
    return require(f"matplotlib.{module}", doing="drawing a figure") if module else whole


def _draw_cells(axes: Any, cells: Cells) -> None:
    known = [v for row in cells.values for v in row if v is not None and v > 0]
    image = _paint(axes, cells, known)
    rows, columns = len(cells.values), len(cells.values[0])
    axes.vlines([x - 0.5 for x in range(1, columns)], -0.5, rows - 0.5, "white", linewidth=0.8)
    axes.hlines([y - 0.5 for y in range(1, rows)], -0.5, columns - 0.5, "white", linewidth=0.8)
    if rows * columns <= MOST_NUMBERS:
        _write_cells(axes, cells, image)
    else:
        _explain_cells(axes, cells)
    if known:
        _draw_scale(axes, image)


def _paint(axes: Any, cells: Cells, known: Sequence[float]) -> Any:
    colors, look = need("colors"), {"aspect": "auto", "interpolation": "nearest"}
    low, high = (min(known), max(known)) if known else (1.0, 10.0)
    # Squares that differ only by clock noise must not look completely different, so span a factor of at least 10.
    middle = math.sqrt(low * high)
    norm = colors.LogNorm(min(low, middle / math.sqrt(10)), max(high, middle * math.sqrt(10)))
    shown = [[v if v and v > 0 else math.nan for v in row] for row in cells.values]
    fills = [
        ["none" if value is not None else CELL_FILLS.get(style, PALE) for value, style in zip(*row, strict=True)]
        for row in zip(cells.values, cells.styles, strict=True)
    ]
    image = axes.imshow(shown, norm=norm, cmap="viridis_r", **look)
    # Draw one image: ten thousand rectangles would take 14 s and 1 GB.
    axes.imshow([[colors.to_rgba(fill) for fill in row] for row in fills], **look)
    return image


def _write_cells(axes: Any, cells: Cells, image: Any) -> None:
    for i, (values, words) in enumerate(zip(cells.values, cells.words, strict=True)):
        for j, (value, word) in enumerate(zip(values, words, strict=True)):
            text, color = (word.replace(" ", "\n"), "#333333") if value is None else _number_in(image, value)
            axes.text(j, i, text, ha="center", va="center", fontsize=6.5, color=color, linespacing=0.95)


def _number_in(image: Any, value_s: float) -> tuple[str, str]:
    """(the number above its unit, as a square is narrow; a colour that can be read on that of the square)"""
    unit = seconds_unit(value_s)
    red, green, blue, _ = image.cmap(image.norm(max(value_s, image.norm.vmin)))
    is_dark = 0.299 * red + 0.587 * green + 0.114 * blue < 0.55
    return f"{number(value_s / SECONDS[unit])}\n{unit}", "white" if is_dark else "black"


def _explain_cells(axes: Any, cells: Cells) -> None:
    """Explains the squares without a value, if there are too many to write in."""
    found = {
        word: CELL_FILLS.get(style, PALE)
        for words, styles in zip(cells.words, cells.styles, strict=True)
        for word, style in zip(words, styles, strict=True)
        if word
    }
    if handles := [need("patches").Patch(facecolor=color, label=word) for word, color in found.items()]:
        axes.legend(handles=handles, fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.08), ncols=4, frameon=False)


def _draw_scale(axes: Any, image: Any) -> None:
    ticker = need("ticker")
    bar = axes.figure.colorbar(image, ax=axes, fraction=0.04, pad=0.02, aspect=30)
    is_narrow = image.norm.vmax < 1000 * image.norm.vmin
    bar.ax.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if is_narrow else (1,)))
    bar.ax.yaxis.set_major_formatter(_format_ticks("seconds", 1))
    bar.ax.yaxis.set_minor_formatter(ticker.NullFormatter())
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
