"""Comparisons as a figure: one line for each, its ratio with the interval, on a logarithmic axis on which 1 is marked.

A verdict is told by colour, by mark and in words. Needs matplotlib, and no display.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from benchax.comparing.ranking import Comparisons
from benchax.errors import UsageError, require
from benchax.model import Comparison
from benchax.reporting.comparisons import interval
from benchax.stats.verdicts import Verdict
from benchax.units import number

# Told apart by all kinds of eyes (Okabe & Ito 2008), and by their marks without any colour.
LOOKS: dict[Verdict, tuple[str, str]] = {
    "faster": ("#009e73", "<"),
    "slower": ("#d55e00", ">"),
    "same": ("#0072b2", "o"),
    "unclear": ("#777777", "D"),
}
LONGEST_NAME = 44
MOST_WORDS = 60
"""Lines up to which each has its numbers beside it."""
LEAST_SPAN = 1.10
"""The axis shows at least this factor to both sides of 1, so that noise does not fill it."""
MOST_SPAN = 3.0
"""Intervals that reach further than this factor beyond all ratios are cut off, with an arrow."""
DOING = "drawing comparisons"


def figure(found: Comparisons) -> Any:
    """A matplotlib Figure of the run times. Made without pyplot: it opens no window, and nothing has to be closed.

    Raises:
        UsageError: there is no comparison of run times.
        MissingPackage: matplotlib is not installed.
    """
    runs = found.of("run")
    if not runs:
        raise UsageError("there is nothing to draw", "comparisons of run times")
    drawing = require("matplotlib.figure", extra="plot", doing=DOING)
    canvas = drawing.Figure(figsize=_size(runs), layout="constrained", dpi=130)
    axes = canvas.add_subplot()
    low, high = _span(runs)
    axes.axvline(1, color="black", linewidth=0.9, zorder=1)
    for y, c in enumerate(runs):
        _line(axes, y, c, low, high)
    _axes(axes, runs, low, high)
    _legend(axes, runs)
    return canvas


def _size(runs: Sequence[Comparison]) -> tuple[float, float]:
    # At most 60 inches: beyond that lines come closer.
    return 8.5, min(60.0, 0.26 * len(runs) + 1.5)


def _span(runs: Sequence[Comparison]) -> tuple[float, float]:
    """The ends of the axis: all ratios, and of their intervals as much as leaves the ratios readable."""
    known = [c for c in runs if c.ratio]
    ratios = [1.0, *(c.ratio for c in known if c.ratio)]
    ends = [end for c in known for end in (c.low, c.high) if end]
    low = max(min([*ratios, *ends]), min(ratios) / MOST_SPAN)
    high = min(max([*ratios, *ends]), max(ratios) * MOST_SPAN)
    room = (high / low) ** 0.04
    return min(low / room, 1 / LEAST_SPAN), max(high * room, LEAST_SPAN)


def _line(axes: Any, y: int, c: Comparison, low: float, high: float) -> None:
    color, mark = LOOKS[c.verdict]
    if c.ratio is None:
        axes.annotate(
            "not measured", (1, y), (6, 0), textcoords="offset points", va="center", fontsize=7.5, color=color
        )
        return
    if c.low is not None and c.high is not None:
        axes.plot([max(c.low, low), min(c.high, high)], [y, y], color=color, linewidth=2.2, alpha=0.55, zorder=2)
        for end, edge, arrow in ((c.low, low, "$←$"), (c.high, high, "$→$")):
            if not low <= end <= high:
                axes.plot([edge], [y], marker=arrow, color=color, markersize=8, clip_on=False, linestyle="none")
    axes.plot([c.ratio], [y], marker=mark, color=color, markersize=6, linestyle="none", zorder=3,
              markerfacecolor="white" if c.verdict == "unclear" else color)  # fmt: skip


def _axes(axes: Any, runs: Sequence[Comparison], low: float, high: float) -> None:
    ticker = require("matplotlib.ticker", extra="plot", doing=DOING)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    places = ticks(low, high)
    axes.xaxis.set_major_locator(ticker.FixedLocator(places))
    axes.xaxis.set_major_formatter(ticker.FixedFormatter([change_name(place) for place in places]))
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    axes.set_ylim(len(runs) - 0.5, -0.5)
    axes.set_yticks(range(len(runs)), names(runs), fontsize=8)
    axes.set_xlabel(_title(runs), fontsize=8.5)
    axes.grid(axis="x", color="#e6e6e6", linewidth=0.7)
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    if len(runs) <= MOST_WORDS:
        beside = axes.secondary_yaxis("right")
        beside.set_yticks(range(len(runs)), [words(c) for c in runs], fontsize=7.5)
        beside.tick_params(length=0, pad=8)  # room for the arrows
        beside.spines["right"].set_visible(False)
        for label, c in zip(beside.get_yticklabels(), runs, strict=True):
            label.set_color(LOOKS[c.verdict][0])


def ticks(low: float, high: float) -> list[float]:
    """Round places of a logarithmic axis, 1 among them: about six, whether it spans 20 % or a factor of 1000."""
    half = max(math.log(high), -math.log(low))
    if half > math.log(2.5):
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        digits = (1, 2, 5) if half < math.log(100) else (1,)
        places = [digit * 10.0**decade for decade in decades for digit in digits]
    elif half > math.log(1.5):
        places = [0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 2.5]
    else:
        step = next(s for s in (0.02, 0.05, 0.1, 0.2) if half / s <= 4 or s == 0.2)
        places = [1 + step * i for i in range(-10, 11) if 1 + step * i > 0]
    return [place for place in places if low <= place <= high]


def change_name(ratio: float) -> str:
    """+5 % of 1.05, up to a factor of 2; beyond that × 2, and × 0.2"""
    if 0.5 < ratio < 2:
        return f"{100 * (ratio - 1):+.0f} %" if abs(ratio - 1) > 1e-9 else "1"
    return f"× {ratio:g}"


def names(runs: Sequence[Comparison]) -> list[str]:
    """What tells the lines apart: the candidates of one case, else the cases, and where needed both."""
    cases, candidates = {c.case for c in runs}, {c.candidate.label for c in runs}
    if len(cases) == 1 and len(candidates) == len(runs):
        return [_truncate(c.candidate.label) for c in runs]
    if len(candidates) == 1:
        return [_truncate(c.case.label) for c in runs]
    return [_truncate(f"{c.case.label}: {c.candidate.label}") for c in runs]


def words(c: Comparison) -> str:
    """slower  +3.2 % (+2.1 to +4.4 %); from a factor of 2 on: faster  × 0.062 (0.058 – 0.067); its result differs"""
    differs = "; its result differs" if c.numerics is not None and not c.numerics.agrees else ""
    if c.ratio is None or 0.5 < c.ratio < 2:
        return f"{c.verdict}  {interval(c)}".rstrip() + differs
    around = f" ({number(c.low)} – {number(c.high)})" if c.low and c.high else ""
    return f"{c.verdict}  × {number(c.ratio)}{around}{differs}"


def _title(runs: Sequence[Comparison]) -> str:
    baselines = {c.baseline.label for c in runs}
    candidates = {c.candidate.label for c in runs}
    against = next(iter(baselines)) if len(baselines) == 1 else "the baseline"
    if len({c.case for c in runs}) == 1:
        return f"{_truncate(runs[0].case.label)}: run time against {_truncate(against)}"
    who = f" of {_truncate(next(iter(candidates)))}" if len(candidates) == 1 else ""
    return f"run time{who} against {_truncate(against)}"


def _legend(axes: Any, runs: Sequence[Comparison]) -> None:
    """Words for the marks, where the lines have none."""
    if len(runs) <= MOST_WORDS:
        return
    lines = require("matplotlib.lines", extra="plot", doing=DOING)
    found = {c.verdict for c in runs}
    handles = [
        lines.Line2D([], [], color=color, marker=mark, linestyle="none", label=verdict)
        for verdict, (color, mark) in LOOKS.items()
        if verdict in found
    ]
    axes.legend(handles=handles, ncols=4, loc="lower left", bbox_to_anchor=(0, 1), fontsize=8, frameon=False)


def _truncate(name: str) -> str:
    """One line; the end is kept, where parameters stand. A dollar would begin a formula."""
    flat, half = " ".join(name.split()), LONGEST_NAME // 2
    short = flat if len(flat) <= LONGEST_NAME else f"{flat[: half - 1]}…{flat[-half:]}"
    return short.replace("$", r"\$")
