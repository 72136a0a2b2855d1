"""Comparisons as a chart: one line for each, its ratio with the interval, on a logarithmic axis on which 1 is marked.

Colour, mark and words each show the verdict.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchax.comparing.ranking import Comparisons
from benchax.errors import UsageError
from benchax.model import Comparison
from benchax.reporting import comparisons, figures
from benchax.reporting.chart import Axis, AxisTick, Chart, Mark, Note, Points, ReferenceLine, Shade, Symbol
from benchax.reporting.document import Document, Heading, Style
from benchax.reporting.tables import one_line
from benchax.stats.verdicts import Verdict
from benchax.units import number, percent

LOOKS: dict[Verdict, tuple[Style, Symbol]] = {
    "faster": ("good", "left"),
    "slower": ("bad", "right"),
    "same": ("", "circle"),
    "unclear": ("faint", "diamond"),
}
LONGEST_NAME = 44
MOST_WORDS = 60
"""Charts with up to this many lines show the numbers next to each line."""
LEAST_SPAN = 1.10
"""The axis shows at least this factor to both sides of 1, so that noise does not fill it."""
MOST_SPAN = 3.0
"""Intervals that reach further than this factor beyond all ratios are cut off, with an arrow."""


def figure(found: Comparisons) -> Any:
    """A matplotlib Figure of the run times.

    Raises:
        UsageError: there is no comparison of run times.
        MissingPackage: matplotlib is not installed.
    """
    return figures.draw(chart(found))


def document(found: Comparisons) -> Document:
    """For a page: what a terminal shows, and the chart below it."""
    drawn = (chart(found),) if found.of("run") else ()
    return Document((*comparisons.document(found).blocks, *drawn))


def document_for_page(found: Comparisons) -> Document:
    """The chart first, under a heading."""
    runs = found.of("run")
    title, _, _ = (_title(found, runs) if runs else "Comparison").partition("\n")
    # The heading says what the title of a figure says.
    drawn = (replace(chart(found), title="ratios with their 95 % intervals"),) if runs else ()
    return Document((Heading(title[:1].upper() + title[1:], 1), *drawn, *comparisons.document(found).blocks))


def chart(found: Comparisons) -> Chart:
    """Raises `UsageError` if there is no comparison of run times."""
    runs = found.of("run")
    if not runs:
        raise UsageError("there is nothing to draw", "comparisons of run times")
    low, high = _span(runs)
    has_words = len(runs) <= MOST_WORDS
    beside = [AxisTick(i, words(c), LOOKS[c.verdict][0]) for i, c in enumerate(runs)]
    return Chart(
        Axis(
            _axis_title(runs), "change", is_log=True, ends=(low, high),
            ticks=tuple(AxisTick(place, change_name(place)) for place in ticks(low, high)),
        ),
        Axis(are_names=True, ticks=tuple(AxisTick(i, name) for i, name in enumerate(names(runs)))),
        (*_shade_same(runs), ReferenceLine("x", 1.0, style="title"), *_marks(runs)),
        title=_title(found, runs),
        beside=tuple(beside) if has_words else (),
        has_legend=not has_words,
    )  # fmt: skip


def _shade_same(runs: Sequence[Comparison]) -> list[Shade]:
    """Returns the range that counts as "same", if it is one range for all."""
    resolutions = {c.resolution for c in runs}
    return [Shade("x", 1 / (1 + within), 1 + within) for within in resolutions if len(resolutions) == 1]


def _marks(runs: Sequence[Comparison]) -> list[Mark]:
    """The comparisons of each verdict together, and a word for those without a ratio."""
    marks: list[Mark] = []
    for verdict, (style, symbol) in LOOKS.items():
        known = [(i, c, c.ratio) for i, c in enumerate(runs) if c.verdict == verdict and c.ratio is not None]
        if known:
            places, values = tuple(i for i, _, _ in known), tuple(ratio for _, _, ratio in known)
            ends = tuple(None if c.low is None or c.high is None else (c.low, c.high) for _, c, _ in known)
            is_hollow = verdict == "unclear"
            marks.append(Points(places, values, ends, "x", verdict, style, symbol, is_hollow))
    return marks + [Note(1, i, "not measured", "faint") for i, c in enumerate(runs) if c.ratio is None]


def _span(runs: Sequence[Comparison]) -> tuple[float, float]:
    """The ends of the axis: all ratios, and of their intervals as much as leaves the ratios readable."""
    known = [c for c in runs if c.ratio]
    ratios = [1.0, *(c.ratio for c in known if c.ratio)]
    ends = [end for c in known for end in (c.low, c.high) if end]
    low = max(min([*ratios, *ends]), min(ratios) / MOST_SPAN)
    high = min(max([*ratios, *ends]), max(ratios) * MOST_SPAN)
    room = (high / low) ** 0.04
    return min(low / room, 1 / LEAST_SPAN), max(high * room, LEAST_SPAN)


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
    """Returns labels that distinguish the lines: the candidates of one case, otherwise the cases, and if needed
    both."""
    cases, candidates = {c.case for c in runs}, {c.candidate.label for c in runs}
    if len(cases) == 1 and len(candidates) == len(runs):
        return [_truncate(c.candidate.label) for c in runs]
    if len(candidates) == 1:
        return [_truncate(c.case.label) for c in runs]
    return [_truncate(f"{c.case.label}: {c.candidate.label}") for c in runs]


def words(c: Comparison) -> str:
    """slower  +3.2 % (+2.1 to +4.4 %); from a factor of 2 on: result differs (faster)  × 0.062 (0.058 – 0.067)"""
    said = comparisons.verdict(c, has_reason=False)
    if c.ratio is None or 0.5 < c.ratio < 2:
        return f"{said}  {comparisons.interval(c)}".rstrip()
    around = f" ({number(c.low)} – {number(c.high)})" if c.low and c.high else ""
    return f"{said}  × {number(c.ratio)}{around}"


def _title(found: Comparisons, runs: Sequence[Comparison]) -> str:
    """Names the compared versions, then the machine, the inputs and the timer, as above the table."""
    candidates = {c.candidate.label for c in runs}
    is_of_functions = runs[0].case.name in found.labels
    case = "" if is_of_functions or len({c.case for c in runs}) > 1 else f"{_truncate(runs[0].case.label)}: "
    who = f" of {_truncate(next(iter(candidates)))}" if len(candidates) == 1 else ""
    return "\n".join(filter(None, (f"{case}run time{who} against {_against(runs)}", comparisons.heading(found))))


def _axis_title(runs: Sequence[Comparison]) -> str:
    """The direction, and what the shade is."""
    resolutions = {c.resolution for c in runs}
    shade = f"   (grey: same, within {percent(next(iter(resolutions)))})" if len(resolutions) == 1 else ""
    return f"← faster    time as that of {_against(runs)}    slower →{shade}"


def _against(runs: Sequence[Comparison]) -> str:
    baselines = {c.baseline.label for c in runs}
    return _truncate(next(iter(baselines))) if len(baselines) == 1 else "the baseline"


def _truncate(name: str) -> str:
    """Shortens a name to one line. It keeps the end, because parameters are there."""
    flat, half = one_line(name), LONGEST_NAME // 2
    return flat if len(flat) <= LONGEST_NAME else f"{flat[: half - 1]}…{flat[-half:]}"
