"""A heat map of times: colour by the logarithm, the number in each square; what was not measured is hatched and named.

Knows nothing of grids: squares come with a time in seconds or a status. Needs matplotlib, and no display.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchax.errors import require
from benchax.units import SECONDS, number, seconds, seconds_unit

SHORT = {
    "timeout": "time\nout", "crashed": "crash", "out_of_memory": "no\nmemory", "error": "error",
    "wrong_shape": "wrong\nshape", "not_run": "not\nrun", "interrupted": "stop",
}  # fmt: skip
COLORS = {
    "timeout": "#f6c667", "crashed": "#e57373", "error": "#e57373", "out_of_memory": "#e57373",
    "wrong_shape": "#c9a0dc", "not_run": "#eeeeee", "interrupted": "#eeeeee",
}  # fmt: skip
MOST_NUMBERS = 1600
"""Squares up to which each shows its number; beyond that the colour must do."""
LONGEST_NAME = 28


@dataclass(frozen=True)
class Square:
    value_s: float | None
    """None: see `status`."""
    status: str = "ok"


def figure(
    rows: Sequence[str],
    columns: Sequence[str],
    squares: Sequence[Sequence[Square]],
    *,
    x_title: str = "",
    title: str = "",
) -> Any:
    """A matplotlib Figure, one line of squares per row.

    Made without pyplot: it opens no window, and nothing has to be closed.

    Raises:
        MissingPackage: matplotlib is not installed.
    """
    require("matplotlib", extra="plot", doing="drawing a heat map")
    drawing = require("matplotlib.figure", extra="plot", doing="drawing a heat map")
    canvas = drawing.Figure(figsize=_size(rows, columns), layout="constrained", dpi=130)
    axes = canvas.add_subplot()
    values = [s.value_s for line in squares for s in line if s.value_s is not None and s.value_s > 0]
    mesh = _paint(axes, squares, values)
    _name_axes(axes, rows, columns, x_title)
    if title:
        axes.set_title(title, fontsize=9, loc="left")
    _write(axes, squares, mesh, len(rows) * len(columns))
    if values:
        _scale(canvas, axes, mesh)
    _legend(axes, squares)
    return canvas


def _size(rows: Sequence[str], columns: Sequence[str]) -> tuple[float, float]:
    names = min(LONGEST_NAME, max(map(len, rows))) * 0.085
    # At most 40 × 30 inches: beyond that squares shrink, and lose their numbers.
    wide = min(40.0, max(4.0, 0.62 * len(columns) + names + 1.4))
    return wide, min(30.0, max(2.2, 0.42 * len(rows) + 1.6))


def _paint(axes: Any, squares: Sequence[Sequence[Square]], values: Sequence[float]) -> Any:
    colors = require("matplotlib.colors", extra="plot", doing="drawing a heat map")
    patches = require("matplotlib.patches", extra="plot", doing="drawing a heat map")
    low, high = (min(values), max(values)) if values else (1.0, 10.0)
    # Neighbours that differ by the noise of a clock must not look like day and night: a factor of 10 at least.
    if high < 10 * low:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(10), middle * math.sqrt(10)
    shown = [[s.value_s if s.value_s and s.value_s > 0 else math.nan for s in line] for line in squares]
    image = axes.imshow(shown, norm=colors.LogNorm(low, high), cmap="viridis_r", aspect="auto", interpolation="nearest")
    if sum(map(len, squares)) > MOST_NUMBERS:
        # One picture: ten thousand hatched rectangles would take 14 s and 1 GB.
        rgba = [
            [(0, 0, 0, 0) if q.value_s is not None else colors.to_rgba(_color(q.status)) for q in line]
            for line in squares
        ]
        axes.imshow(rgba, aspect="auto", interpolation="nearest")
        return image
    for i, line in enumerate(squares):
        for j, square in enumerate(line):
            if square.value_s is None:
                look = {"facecolor": _color(square.status), "hatch": "////", "edgecolor": "#ffffff", "lw": 0}
                axes.add_patch(patches.Rectangle((j - 0.5, i - 0.5), 1, 1, **look))
    return image


def _color(status: str) -> str:
    return COLORS.get(status, "#eeeeee")


def _name_axes(axes: Any, rows: Sequence[str], columns: Sequence[str], x_title: str) -> None:
    long = max(map(len, columns)) > 5
    every = max(1, len(columns) // 60)
    axes.set_xticks(
        range(0, len(columns), every),
        [_truncate(name) for name in columns[::every]],
        rotation=45 if long else 0,
        ha="right" if long else "center",
        rotation_mode="anchor" if long else "default",
        fontsize=8,
    )
    every = max(1, len(rows) // 70)
    axes.set_yticks(range(0, len(rows), every), [_truncate(name) for name in rows[::every]], fontsize=8)
    axes.set_xlabel(x_title, fontsize=9)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    # Thin lines between the squares.
    axes.set_xticks([x - 0.5 for x in range(1, len(columns))], minor=True)
    axes.set_yticks([y - 0.5 for y in range(1, len(rows))], minor=True)
    axes.grid(which="minor", color="white", linewidth=0.8)
    axes.tick_params(which="minor", length=0)


def _write(axes: Any, squares: Sequence[Sequence[Square]], image: Any, count: int) -> None:
    if count > MOST_NUMBERS:
        return
    for i, line in enumerate(squares):
        for j, square in enumerate(line):
            if square.value_s is None:
                text, color = SHORT.get(square.status, square.status), "#333333"
            else:
                text, color = _in_square(square.value_s), _readable_on(image, square.value_s)
            axes.text(j, i, text, ha="center", va="center", fontsize=6.5, color=color, linespacing=0.95)


def _in_square(value_s: float) -> str:
    """The number above its unit: a square is narrow."""
    unit = seconds_unit(value_s)
    return f"{number(value_s / SECONDS[unit])}\n{unit}"


def _readable_on(image: Any, value_s: float) -> str:
    red, green, blue, _ = image.cmap(image.norm(max(value_s, image.norm.vmin)))
    return "white" if 0.299 * red + 0.587 * green + 0.114 * blue < 0.55 else "black"


def _scale(canvas: Any, axes: Any, image: Any) -> None:
    ticker = require("matplotlib.ticker", extra="plot", doing="drawing a heat map")
    bar = canvas.colorbar(image, ax=axes, fraction=0.04, pad=0.02, aspect=30)
    narrow = image.norm.vmax < 1000 * image.norm.vmin
    bar.ax.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if narrow else (1,)))
    bar.ax.yaxis.set_major_formatter(ticker.FuncFormatter(_tick))
    bar.ax.yaxis.set_minor_formatter(ticker.NullFormatter())
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)


def _tick(value_s: float, position: int) -> str:
    return seconds(value_s, 1)


def _legend(axes: Any, squares: Sequence[Sequence[Square]]) -> None:
    """Words for the hatched squares, where these are too many to be written in."""
    if sum(map(len, squares)) <= MOST_NUMBERS:
        return
    patches = require("matplotlib.patches", extra="plot", doing="drawing a heat map")
    found = {square.status for line in squares for square in line if square.value_s is None}
    handles = [
        patches.Patch(facecolor=color, label=status.replace("_", " "))
        for status, color in COLORS.items()
        if status in found
    ]
    if handles:
        axes.legend(handles=handles, fontsize=7, loc="upper left", bbox_to_anchor=(0, -0.08), ncols=4, frameon=False)


def _truncate(name: str) -> str:
    flat = " ".join(name.split())
    return flat if len(flat) <= LONGEST_NAME else flat[: LONGEST_NAME - 1] + "…"
