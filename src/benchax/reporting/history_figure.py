"""A history as a figure: ratios with their intervals, commit by commit, the levels between changes, and what broke it.

Needs matplotlib, and no display.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from benchax.comparing.gate import amount
from benchax.comparing.history import History, Stretch
from benchax.errors import require
from benchax.reporting.history import NAMES, commit, size_of
from benchax.reporting.tables import one_line

# Told apart by all kinds of eyes (Okabe & Ito 2008).
POINT, WORSE, BETTER, OTHER = "#0072b2", "#d55e00", "#009e73", "#777777"
MOST_NAMES = 34
"""Commits that are named on the axis, besides those where something changed."""
MOST_COUNTS = 6
"""So many are named on the axis themselves: 1.00 MiB, not 977 KiB."""
LONGEST_WHY = 44
LEAST_SPAN = 0.06
"""The axis shows at least this share, so that noise does not fill it."""
LONGEST_NAME = 16
LONGEST_TITLE = 70
DOING = "drawing a history"


def figure(h: History) -> Any:
    """A matplotlib Figure. Made without pyplot: it opens no window, and nothing has to be closed.

    Raises:
        MissingPackage: matplotlib is not installed.
    """
    require("matplotlib", extra="plot", doing=DOING)
    drawing = require("matplotlib.figure", extra="plot", doing=DOING)
    wide = min(14.0, max(6.5, 0.11 * len(h.points) + 2.5))
    canvas = drawing.Figure(figsize=(wide, 4.4), layout="constrained", dpi=130)
    axes = canvas.add_subplot()
    _points(axes, h)
    for stretch in h.stretches:
        _level(axes, stretch)
    _changes(axes, h)
    _breaks(axes, h)
    _axes(axes, h)
    _title(axes, h)
    return canvas


def _points(axes: Any, h: History) -> None:
    known = [(i, c, v) for i, (c, v) in enumerate(zip(h.points, h.values, strict=True)) if v is not None]
    for i, c, _ in known:
        if c.low is not None and c.high is not None:
            axes.plot([i, i], [c.low, c.high], color=POINT, alpha=0.35, linewidth=1.6, solid_capstyle="butt")
    looks = {
        "clear": {"facecolor": POINT},
        "unclear by itself": {"facecolor": "white", "edgecolor": POINT},
    }
    for (label, look), is_unclear in zip(looks.items(), (False, True), strict=True):
        if shown := [(i, v) for i, c, v in known if (c.verdict == "unclear") == is_unclear]:
            axes.scatter(*zip(*shown, strict=True), s=15, zorder=3, linewidth=0.9, label=label, **look)
    if missing := [i for i, v in enumerate(h.values) if v is None]:
        heights = [0.02] * len(missing)
        look = {"transform": axes.get_xaxis_transform(), "marker": "x", "s": 14, "linewidth": 0.9, "color": OTHER}
        axes.scatter(missing, heights, label="not measured", **look)
    handles, labels = axes.get_legend_handles_labels()
    if labels and labels != ["clear"]:
        axes.legend(handles, labels, ncols=3, loc="lower right", bbox_to_anchor=(1, 1), fontsize=7.5, frameon=False,
                    handletextpad=0.1, columnspacing=1.0)  # fmt: skip


def _level(axes: Any, stretch: Stretch) -> None:
    """One line for each run of neighbours: it leaves out what lies between on another machine."""
    ends = [0, *(i for i, (a, b) in enumerate(pairwise(stretch.places), 1) if b != a + 1), len(stretch.places)]
    for a, b in pairwise(ends):
        first, last = stretch.places[a], stretch.places[b - 1]
        axes.plot([first - 0.4, last + 0.4], [stretch.level] * 2, color="black", linewidth=1.1, alpha=0.75, zorder=2)


def _changes(axes: Any, h: History) -> None:
    for nth, change in enumerate(h.changes):
        color = WORSE if change.after > change.before else BETTER
        axes.axvline(change.at - 0.5, color=color, linewidth=1.1, linestyle=(0, (4, 2)))
        text = f"{_truncate(commit(h.points[change.at]), LONGEST_NAME)}\n{size_of(change, h)}"
        # In turn on two heights: changes may be neighbours.
        _beside(axes, change.at, 0.985 - 0.105 * (nth % 2), text, color, h)


def _beside(axes: Any, at: int, height: float, text: str, color: str, h: History) -> None:
    """To the right of the line before `at`, or to the left where the figure ends."""
    is_late = at > 0.8 * len(h.points)
    axes.annotate(
        text, (at - 0.5, height), (-4 if is_late else 4, 0), xycoords=axes.get_xaxis_transform(),
        textcoords="offset points", ha="right" if is_late else "left", va="top", fontsize=7.5, color=color,
        parse_math=False,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0}, zorder=5,
    )  # fmt: skip


def _breaks(axes: Any, h: History) -> None:
    """Words only where there is room for them: where two machines take turns, the first break says it."""
    free = 0.0
    for found in h.breaks:
        axes.axvline(found.at - 0.5, color=OTHER, linewidth=3, alpha=0.3)
        if found.at >= free:
            _beside(axes, found.at, 0.07, _truncate(found.why, LONGEST_WHY), OTHER, h)
            free = found.at + 0.3 * len(h.points)


def _axes(axes: Any, h: History) -> None:
    ticker = require("matplotlib.ticker", extra="plot", doing=DOING)

    def named_value(value: float, position: int) -> str:
        return amount(value, h.metric) if h.is_counted else f"{_share(value)} %"

    axes.yaxis.set_major_formatter(ticker.FuncFormatter(named_value))
    counts = sorted({v for v in h.values if v is not None})
    if h.is_counted and len(counts) <= MOST_COUNTS:
        axes.set_yticks(counts)
    elif not h.is_counted:
        axes.axhline(1, color=OTHER, linewidth=0.8)
        axes.set_ylabel(f"time against {_truncate(h.baseline, LONGEST_WHY)}", fontsize=8.5, parse_math=False)
    _span(axes, h)
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.tick_params(labelsize=8)
    named = _labelled_positions(h)
    names = [_truncate(commit(h.points[i]), LONGEST_NAME) for i in named]
    axes.set_xticks(named, names, rotation=90, fontsize=7, family="monospace", parse_math=False)
    axes.set_xlim(-1, len(h.points))
    changed = {change.at: WORSE if change.after > change.before else BETTER for change in h.changes}
    for place, label in zip(named, axes.get_xticklabels(), strict=True):
        label.set_color(changed.get(place, "black"))


def _share(ratio: float) -> str:
    """+5 of 1.05"""
    share = round(100 * (ratio - 1), 3)
    return f"{'+' if share > 0 else ''}{share:g}"


def _span(axes: Any, h: History) -> None:
    """Room above for the words; intervals that reach far beyond all ratios are cut off."""
    values = [v for v in h.values if v is not None] or [1.0]
    middle = max(abs(v) for v in values) or 1.0
    reach = max((max(values) - min(values)) / 2, LEAST_SPAN * middle)
    ends = [end for c in h.points for end in (c.low, c.high) if end is not None and not h.is_counted]
    low = max(min([*values, *ends]), min(values) - reach)
    high = min(max([*values, *ends]), max(values) + reach)
    rest = max(0.0, LEAST_SPAN * middle - (high - low)) / 2
    height = high - low + 2 * rest
    axes.set_ylim(low - rest - 0.18 * height, high + rest + 0.3 * height)


def _labelled_positions(h: History) -> list[int]:
    """Places of commits on the axis: the changes, the ends, and as many others as can be read."""
    every = -(-len(h.points) // MOST_NAMES)
    needed = sorted({0, len(h.points) - 1, *(change.at for change in h.changes)})
    others = [i for i in range(0, len(h.points), every) if all(abs(i - place) >= every for place in needed)]
    return sorted([*needed, *others])


def _title(axes: Any, h: History) -> None:
    title = f"{_truncate(h.case.label, LONGEST_TITLE)}: {NAMES[h.metric]} against {_truncate(h.baseline, LONGEST_WHY)}"
    axes.set_title(title, fontsize=9.5, loc="left", parse_math=False)


def _truncate(text: str, longest: int) -> str:
    flat = one_line(text)
    return flat if len(flat) <= longest else flat[: longest - 1] + "…"
