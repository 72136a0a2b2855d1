"""Draws the `Cells` of a chart with matplotlib: a heat map, with a number or a word in each square."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from benchax.errors import require
from benchax.reporting.chart import Cells, Chart, describe_value
from benchax.reporting.styles import Style
from benchax.reporting.tables import one_line
from benchax.units import SECONDS, number, seconds_unit

FILLS: dict[Style, str] = {"warning": "#f6c667", "bad": "#e57373", "info": "#c9a0dc"}
"""The colours of hatched squares, on which words are written; all others are pale grey."""
PALE = "#eeeeee"
MOST_NUMBERS = 1600
"""Squares up to which each shows its number; beyond that the colour must do."""
LONGEST_NAME = 28
"""The longest name of a row or column of squares."""


def need(module: str = "") -> Any:
    """matplotlib, or a module of it."""
    whole = require("matplotlib", doing="drawing a figure")
    return require(f"matplotlib.{module}", doing="drawing a figure") if module else whole


def draw_cells(canvas: Any, axes: Any, chart: Chart, cells: Cells) -> None:
    known = [v for row in cells.values for v in row if v is not None and v > 0]
    image = _paint(axes, cells, known)
    _name_cells(axes, chart)
    axes.set_title(chart.title, fontsize=9, loc="left", parse_math=False)
    if _count(cells) <= MOST_NUMBERS:
        _write_cells(axes, cells, image)
    else:
        _explain_cells(axes, cells)
    if known:
        _draw_scale(canvas, axes, image)


def _count(cells: Cells) -> int:
    return sum(map(len, cells.values))


def _paint(axes: Any, cells: Cells, known: Sequence[float]) -> Any:
    colors, patches = need("colors"), need("patches")
    low, high = (min(known), max(known)) if known else (1.0, 10.0)
    # Neighbours that differ by the noise of a clock must not look like day and night: a factor of 10 at least.
    if high < 10 * low:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(10), middle * math.sqrt(10)
    shown = [[v if v and v > 0 else math.nan for v in row] for row in cells.values]
    image = axes.imshow(shown, norm=colors.LogNorm(low, high), cmap="viridis_r", aspect="auto", interpolation="nearest")
    empty = [
        (i, j, FILLS.get(style, PALE))
        for i, (values, styles) in enumerate(zip(cells.values, cells.styles, strict=True))
        for j, (value, style) in enumerate(zip(values, styles, strict=True))
        if value is None
    ]
    if _count(cells) > MOST_NUMBERS:
        # One picture: ten thousand hatched rectangles would take 14 s and 1 GB.
        rgba = [[(0.0, 0.0, 0.0, 0.0)] * len(row) for row in cells.values]
        for i, j, color in empty:
            rgba[i][j] = colors.to_rgba(color)
        axes.imshow(rgba, aspect="auto", interpolation="nearest")
        return image
    for i, j, color in empty:
        look = {"facecolor": color, "hatch": "////", "edgecolor": "#ffffff", "lw": 0}
        axes.add_patch(patches.Rectangle((j - 0.5, i - 0.5), 1, 1, **look))
    return image


def _name_cells(axes: Any, chart: Chart) -> None:
    columns, rows = ([_shorten(tick.text) for tick in axis.ticks] for axis in (chart.x, chart.y))
    is_long = max(map(len, columns)) > 5
    every = max(1, len(columns) // 60)
    axes.set_xticks(
        range(0, len(columns), every), columns[::every], rotation=45 if is_long else 0,
        ha="right" if is_long else "center", rotation_mode="anchor" if is_long else "default", fontsize=8,
        parse_math=False,
    )  # fmt: skip
    every = max(1, len(rows) // 70)
    axes.set_yticks(range(0, len(rows), every), rows[::every], fontsize=8, parse_math=False)
    axes.set_xlabel(chart.x.title, fontsize=9, parse_math=False)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    # Thin lines between the squares.
    axes.set_xticks([x - 0.5 for x in range(1, len(columns))], minor=True)
    axes.set_yticks([y - 0.5 for y in range(1, len(rows))], minor=True)
    axes.grid(which="minor", color="white", linewidth=0.8)
    axes.tick_params(which="minor", length=0)


def _shorten(name: str) -> str:
    flat = one_line(name)
    return flat if len(flat) <= LONGEST_NAME else flat[: LONGEST_NAME - 1] + "…"


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
        word: FILLS.get(style, PALE)
        for words, styles in zip(cells.words, cells.styles, strict=True)
        for word, style in zip(words, styles, strict=True)
        if word
    }
    handles = [need("patches").Patch(facecolor=color, label=word) for word, color in found.items()]
    if handles:
        axes.legend(handles=handles, fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.08), ncols=4, frameon=False)


def _draw_scale(canvas: Any, axes: Any, image: Any) -> None:
    ticker = need("ticker")
    bar = canvas.colorbar(image, ax=axes, fraction=0.04, pad=0.02, aspect=30)
    is_narrow = image.norm.vmax < 1000 * image.norm.vmin
    bar.ax.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if is_narrow else (1,)))
    bar.ax.yaxis.set_major_formatter(ticker.FuncFormatter(_describe_tick))
    bar.ax.yaxis.set_minor_formatter(ticker.NullFormatter())
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)


def _describe_tick(value_s: float, position: int) -> str:
    return describe_value(value_s, "seconds", 1)
