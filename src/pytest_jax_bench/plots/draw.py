"""Turns a `Picture` into matplotlib's Figure, and writes it to a file.

Figures are made without pyplot: no window opens, and nothing has to be closed. They are independent of the settings of
the user's own plots.
"""

from __future__ import annotations

import contextlib
import math
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchax.errors import require
from benchax.units import BYTES, SECONDS, seconds, seconds_unit, size
from pytest_jax_bench.plots.readings import Band, Floats, Panel, Picture, PictureAxis, PictureSeries, plain, spread

# Labels the axis of values: a linear axis has its unit in the label, and a logarithmic one at each tick.


def need(module: str) -> Any:
    require("matplotlib", doing="drawing")
    return require(module, doing="drawing")


def scale_values(axes: Any, panel: Panel, to_the_right: bool) -> float:
    """Limits, ticks and unit of the axis of values.

    Returns:
        seconds or bytes per unit of the axis.
    """
    axis, scale_to, limit = (
        (axes.xaxis, axes.set_xscale, axes.set_xlim) if to_the_right else (axes.yaxis, axes.set_yscale, axes.set_ylim)
    )
    named = axes.set_xlabel if to_the_right else axes.set_ylabel
    if panel.is_log:
        _log(axis, scale_to, panel)
        named(panel.title)
        return 1.0
    unit, scale = _unit(panel)
    low, high = _limits(panel, is_from_0=to_the_right)
    limit(low / scale, high / scale)
    axis.set_major_locator(need("matplotlib.ticker").MaxNLocator(5 if to_the_right else 6))
    # An offset stands in a corner, where it is overlooked; all ticks are then read wrong.
    axis.get_major_formatter().set_useOffset(False)
    named(f"{panel.title} ({unit})")
    return scale


def _unit(panel: Panel) -> tuple[str, float]:
    top = float(panel.finite().max())
    unit = seconds_unit(top) if panel.kind == "time" else size(top).rsplit(" ", 1)[1]
    return unit, SECONDS[unit] if panel.kind == "time" else BYTES[unit]


def _limits(panel: Panel, is_from_0: bool) -> tuple[float, float]:
    """From 0, unless a history's values lie close together; even then so wide that 1 % doesn't look like a cliff."""
    ends = [panel.finite(), *(end[np.isfinite(end)] for s in panel.series for end in (s.low, s.high))]
    low, high = float(np.concatenate(ends).min()), float(np.concatenate(ends).max())
    if low > 0 and high < 1.4 * low and not is_from_0:
        middle = (low + high) / 2
        return 0.75 * middle, 1.25 * middle
    return 0.0, high * 1.08 or 1.0


def _log(axis: Any, scale_to: Any, panel: Panel) -> None:
    ticker = need("matplotlib.ticker")
    if panel.kind == "time":
        scale_to("log", nonpositive="mask")
        narrow = spread(panel.finite()) < 300
        axis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5) if narrow else (1,), numticks=9))
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: seconds(value, 1)))
    else:
        _log_sizes(axis, scale_to, panel.finite())
        axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: size(value, 1)))
    axis.set_minor_locator(ticker.NullLocator())


def _log_sizes(axis: Any, scale_to: Any, values: Floats) -> None:
    """Draws powers of 4, from B to GiB. A size of 0 bytes is a size like others, and is at the end of the axis."""
    ticker = need("matplotlib.ticker")
    least = 4.0 ** math.floor(math.log(values[values > 0].min(), 4))
    decades = math.log(values.max() / least, 4)
    ticks = [least * 4.0**step for step in range(0, math.ceil(decades) + 1, 1 + int(decades // 6))]
    if values.min() > 0:
        scale_to("log")
    else:
        scale_to("symlog", base=4, linthresh=least, linscale=0.6)
        ticks = [0.0, *ticks]
    axis.set_major_locator(ticker.FixedLocator(ticks))


MARKERS = ("o", "s", "D", "^", "v")
RED = "#C62828"
FAILED = "failed: "
GREY = "#666666"
INCHES_PER_NAME = 0.24
MOST_LEGEND = 36
# Asked for where they are installed: the font of matplotlib has no Chinese, Japanese and Korean characters.
WIDER_FONTS = ("Noto Sans CJK JP", "Noto Sans CJK SC", "Microsoft YaHei", "Hiragino Sans", "Arial Unicode MS")
# Without a date, the same rows give the same file.
METADATA: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}


def save(picture: Picture, path: Path) -> None:
    """Draws `picture` into a file, whose suffix says in which format; a file that is there is replaced.

    Raises:
        MissingPackage: matplotlib is not installed.
        OSError: the file cannot be written.
    """
    with _our_style(), warnings.catch_warnings():
        # A character without a glyph, or a picture too full to be laid out well: no reason to have none, and none for
        # pytest -W error to fail.
        warnings.simplefilter("ignore")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure(picture).savefig(path, metadata=METADATA[path.suffix.lstrip(".")])


def figure(picture: Picture) -> Any:
    drawn = need("matplotlib.figure").Figure(figsize=_inches(picture), layout="constrained")
    drawn.suptitle(plain(picture.title), x=0.01, ha="left", fontsize=11, fontweight="bold")
    _note(drawn, picture)
    if not picture.panels:
        _nothing(drawn, picture)
        return drawn
    grid = (1, len(picture.panels)) if picture.axis.are_names else (len(picture.panels), 1)
    every = list(drawn.subplots(*grid, sharex=grid[1] == 1, sharey=grid[0] == 1, squeeze=False).flat)
    for axes, panel in zip(every, picture.panels, strict=True):
        _panel(axes, panel, picture)
    (_names if picture.axis.are_names else _along)(every, picture)
    _failures(every[0], picture)
    _legends(drawn, every, picture)
    return drawn


@contextlib.contextmanager
def _our_style() -> Iterator[None]:
    fonts = {font.name for font in need("matplotlib.font_manager").fontManager.ttflist}
    ours = {
        "font.family": ["DejaVu Sans", *(f for f in WIDER_FONTS if f in fonts)],
        "font.size": 8.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#999999",
        "axes.axisbelow": True,
        "grid.color": "#e3e3e3",
        "grid.linewidth": 0.6,
        "xtick.color": "#444444",
        "ytick.color": "#444444",
        "legend.frameon": False,
        "legend.fontsize": 8,
        "savefig.dpi": 130,
        # Else the ids of an SVG are random, and the same rows give another file every time.
        "svg.hashsalt": "benchax",
        "figure.constrained_layout.h_pad": 0.06,
    }
    # "default" first: a user's matplotlibrc may ask for TeX, or for a dark page.
    with need("matplotlib.style").context(["default", ours]):
        yield


def _inches(picture: Picture) -> tuple[float, float]:
    panels = len(picture.panels)
    if not picture.axis.are_names or not panels:
        return 9.0, 1.2 + 1.9 * panels
    names = 0.072 * max((len(text) for _, text in picture.axis.ticks), default=0)
    rows = max(len(picture.axis.ticks), 3)
    return 1.8 + names + 2.7 * panels, min(120.0, 1.5 + INCHES_PER_NAME * rows)


def _note(drawn: Any, picture: Picture) -> None:
    wide = int(_inches(picture)[0] * 16)
    text = "\n".join(line for note in picture.notes for line in textwrap.wrap(note, wide))
    drawn.supxlabel(plain(text), x=0.01, ha="left", fontsize=7.5, color=GREY)


def _nothing(drawn: Any, picture: Picture) -> None:
    kinds = [kind for kind in picture.failures if kind]
    why = "no row of this test holds a number"
    if kinds:
        counted = ", ".join(f"{kind} ({kinds.count(kind)} ×)" for kind in dict.fromkeys(kinds))
        why = f"{len(kinds)} of {len(picture.failures)} rows failed, and the others hold no number: {counted}"
        why = why if len(kinds) < len(picture.failures) else f"every run failed: {counted}"
    axes = drawn.add_subplot()
    axes.set_axis_off()
    axes.text(0.5, 0.5, plain(f"not measured, because {why}"), ha="center", va="center", color=GREY, fontsize=10)


def _panel(axes: Any, panel: Panel, picture: Picture) -> None:
    axes.grid(True, axis="both" if picture.axis.are_names else "y")
    scale = scale_values(axes, panel, picture.axis.are_names)
    offsets = _offsets(panel.series) if picture.axis.are_names else dict.fromkeys(range(len(panel.series)), 0.0)
    for number, series in enumerate(panel.series):
        _series(axes, series, picture, scale, offsets[number])


def _offsets(series: Sequence[PictureSeries]) -> dict[int, float]:
    """Series of one name are a little below one another, the hollow ones with their partners."""
    count = len(series)
    width = min(0.56, 0.16 * (count - 1))
    return {i: (i / (count - 1) - 0.5) * width if count > 1 else 0.0 for i in range(count)}


def _series(axes: Any, series: PictureSeries, picture: Picture, scale: float, offset: float) -> None:
    x, value = picture.axis.positions[series.rows] + offset, series.value / scale
    below, above = (np.clip(bar / scale, 0, None) for bar in (series.value - series.low, series.high - series.value))
    lines = picture.lines[series.rows]
    marker_size = 5.5 if len(np.unique(x)) < 60 else 3.0
    for line in np.unique(lines):
        here = np.flatnonzero(lines == line)
        here = here[np.argsort(x[here], kind="stable")]
        if not np.isfinite(value[here]).any():
            continue
        look = {
            "color": series.color,
            "marker": "+" if series.is_mean else MARKERS[line % len(MARKERS)],
            "markersize": marker_size + 1.5 * series.is_mean,
            "markerfacecolor": "white" if series.is_hollow else series.color,
            "linestyle": ("--" if series.is_hollow else "-") if picture.axis.is_connected else "none",
            "linewidth": 1.1,
            "capsize": 0,
            "elinewidth": 1.3,
            "label": plain(series.label),
        }
        error = np.stack([below[here], above[here]])
        error = np.where(np.isfinite(error), error, np.nan)
        if picture.axis.are_names:
            axes.errorbar(value[here], x[here], xerr=error, **look)
        else:
            axes.errorbar(x[here], value[here], yerr=error, **look)


def _failures(axes: Any, picture: Picture) -> None:
    """Draws marks at the edge of the first panel, for failures without a value."""
    failed = [i for i, kind in enumerate(picture.failures) if kind]
    if picture.axis.are_names:
        failed = _describe_in_words(axes, picture, failed)
    if failed:
        label = FAILED + ", ".join(dict.fromkeys(picture.failures[i] for i in failed))
        at, edge = picture.axis.positions[failed], [0.045] * len(failed)
        x, y, transform = (at, edge, axes.get_xaxis_transform())
        if picture.axis.are_names:
            x, y, transform = (edge, at, axes.get_yaxis_transform())
        axes.plot(x, y, "X", color=RED, markersize=7, clip_on=False, transform=transform, label=plain(label), zorder=5)


def _describe_in_words(axes: Any, picture: Picture, failed: Sequence[int]) -> list[int]:
    """Says in the line of a name why it is empty.

    Returns:
        The failed rows whose line is not empty, as it has values of other rows.
    """
    panels = [{int(row) for s in panel.series for row in s.rows[np.isfinite(s.value)]} for panel in picture.panels]
    here, anywhere = ({picture.axis.positions[row] for row in rows} for rows in (panels[0], set[int]().union(*panels)))
    style: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "fontsize": 8, "va": "center"}
    for row, position in enumerate(picture.axis.positions):
        if row in failed and position not in here:
            axes.text(0.02, position, plain(f"✗ {picture.failures[row]}"), color=RED, **style)
        elif position not in anywhere:
            axes.text(0.02, position, "not measured", color=GREY, **style)
    return [row for row in failed if picture.axis.positions[row] in here]


def _names(every: Sequence[Any], picture: Picture) -> None:
    first, count = every[0], len(picture.axis.ticks)
    first.set_ylim(count - 0.5, -0.5)
    first.set_yticks([at for at, _ in picture.axis.ticks], [plain(text) for _, text in picture.axis.ticks])
    for axes in every:
        axes.tick_params(axis="y", length=0, labelsize=8.5)
        for position in range(1, count, 2):
            axes.axhspan(position - 0.5, position + 0.5, color="#f6f6f6", lw=0, zorder=0)


def _along(every: Sequence[Any], picture: Picture) -> None:
    axis, last = picture.axis, every[-1]
    last.set_xlabel(plain(axis.label))
    if axis.is_log:
        last.set_xscale("log")
    else:
        low, high = _ends(axis)
        last.set_xlim(low, high)
    _x_ticks(last, axis)
    for axes in every:
        for band in axis.bands[1::2]:
            axes.axvspan(band.low, band.high, color="#f3f3f3", lw=0, zorder=0)
        axes.tick_params(axis="x", labelbottom=axes is last)
    if axis.bands and axis.is_connected:
        top = every[0].secondary_xaxis("top")
        top.spines["top"].set_visible(False)
        _band_labels(top, axis.bands, *every[0].get_xlim())
    elif axis.bands:
        _band_labels(last, axis.bands, *last.get_xlim())


def _ends(axis: PictureAxis) -> tuple[float, float]:
    if axis.bands:
        return axis.bands[0].low, axis.bands[-1].high
    low, high = float(axis.positions.min()), float(axis.positions.max())
    margin = 0.03 * (high - low) or 0.5
    return low - margin, high + margin


def _x_ticks(last: Any, axis: PictureAxis) -> None:
    ticker = need("matplotlib.ticker")
    if axis.ticks:
        last.set_xticks([at for at, _ in axis.ticks], [plain(text) for _, text in axis.ticks])
        last.xaxis.set_minor_locator(ticker.NullLocator())
    elif axis.bands:
        last.xaxis.set_major_locator(ticker.MaxNLocator(12, integer=True, min_n_ticks=1))


def _band_labels(axes: Any, bands: Sequence[Band], low: float, high: float) -> None:
    """In the middle of each band; upright where they are many, and not all where they are too many."""
    beside, upright = (high - low) * 0.095, (high - low) * 0.022
    middles = [((band.low + band.high) / 2, band.label) for band in bands]
    are_upright = any(b[0] - a[0] < beside for a, b in pairwise(middles))
    shown: list[tuple[float, str]] = []
    for at, label in middles:
        if not shown or at - shown[-1][0] >= (upright if are_upright else beside):
            shown.append((at, label))
    axes.set_xticks([at for at, _ in shown], [plain(text) for _, text in shown])
    axes.tick_params(axis="x", length=0, labelsize=7.5, rotation=90 if are_upright else 0, pad=3)


def _legend(axes: Any) -> dict[str, Any]:
    """Handles by label: of several that share one (eager and jitted, old and new rows), the first; failures last."""
    found: dict[str, Any] = {}
    for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
        found.setdefault(label, handle)
    return dict(sorted(found.items(), key=lambda item: item[0].startswith(FAILED)))


def _legends(drawn: Any, every: Sequence[Any], picture: Picture) -> None:
    """Outside the data: right of each panel, above it where names stand on the left, or one for all panels."""
    panels = [_legend(axes) for axes in every]
    if picture.has_common_legend:
        handles = {label: handle for panel in reversed(panels) for label, handle in panel.items()}
        ordered = dict.fromkeys(label for panel in panels for label in panel)
        shown = list(ordered)[:MOST_LEGEND]
        title = None if len(shown) == len(ordered) else f"{len(shown)} of {len(ordered)} series"
        drawn.legend([handles[label] for label in shown], shown, loc="outside right upper", title=title)
        return
    for axes, panel in zip(every, panels, strict=True):
        if all(label in axes.get_ylabel() + axes.get_xlabel() for label in panel):
            continue  # its title says it
        if picture.axis.are_names:
            where: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "ncols": 2, "columnspacing": 1}
        else:
            where = {"loc": "upper left", "bbox_to_anchor": (1.005, 1.03)}
        axes.legend(panel.values(), panel.keys(), handletextpad=0.5, **where)
