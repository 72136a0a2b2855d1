"""A history as a chart: ratios with their intervals by commit, the levels between changes, and what broke them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

from benchax.comparing.gate import amount
from benchax.comparing.history import Change, History, Stretch
from benchax.model import METRICS
from benchax.reporting import figures
from benchax.reporting.chart import Axis, AxisTick, Chart, Line, Mark, Points, Quantity, ReferenceLine
from benchax.reporting.document import Style
from benchax.reporting.history import NAMES, commit, size_of
from benchax.reporting.tables import one_line

MOST_NAMES = 34
"""Commits that are named on the axis, besides those where something changed."""
MOST_COUNTS = 6
"""So many are named on the axis themselves: 1.00 MiB, not 977 KiB."""
LONGEST_WHY = 44
LEAST_SPAN = 0.06
"""The axis shows at least this share, so that noise does not fill it."""
LONGEST_NAME = 16
LONGEST_TITLE = 70


def figure(h: History) -> Any:
    """A matplotlib Figure. Raises `MissingPackage` without matplotlib."""
    return figures.draw(chart(h))


def chart(h: History) -> Chart:
    points = list(_points(h))
    rules = [ReferenceLine("y", 1.0, style="faint")] if not h.is_counted else []
    levels = [line for stretch in h.stretches for line in _levels(stretch)]
    marks: tuple[Mark, ...] = (*points, *levels, *rules, *_changes(h), *_breaks(h))
    title = f"{_truncate(h.case.label, LONGEST_TITLE)}: {NAMES[h.metric]} against {_truncate(h.baseline, LONGEST_WHY)}"
    # A legend of one word that says nothing is none.
    return Chart(_commits(h), _values(h), marks, title, has_legend=[p.label for p in points] != ["clear"])


def _points(h: History) -> Iterator[Points]:
    """Those that are clear, those that are not, and those without a value."""
    listed = list(enumerate(zip(h.points, h.values, strict=True)))
    for label, is_unclear in (("clear", False), ("unclear by itself", True)):
        chosen = [(i, c, v) for i, (c, v) in listed if v is not None and (c.verdict == "unclear") == is_unclear]
        if chosen:
            ends = tuple(None if c.low is None or c.high is None else (c.low, c.high) for _, c, _ in chosen)
            places, values = tuple(i for i, _, _ in chosen), tuple(v for _, _, v in chosen)
            yield Points(places, values, ends, label=label, is_hollow=is_unclear)
    if missing := tuple(i for i, (_, v) in listed if v is None):
        yield Points(missing, (None,) * len(missing), label="not measured", style="faint")


def _levels(stretch: Stretch) -> Iterator[Line]:
    """One line for each run of neighbours: it leaves out what lies between on another machine."""
    ends = [0, *(i for i, (a, b) in enumerate(pairwise(stretch.places), 1) if b != a + 1), len(stretch.places)]
    for a, b in pairwise(ends):
        first, last = stretch.places[a], stretch.places[b - 1]
        yield Line((first - 0.4, last + 0.4), (stretch.level, stretch.level), style="title")


def _changes(h: History) -> Iterable[ReferenceLine]:
    for change in h.changes:
        text = f"{_truncate(commit(h.points[change.at]), LONGEST_NAME)}\n{size_of(change, h)}"
        yield ReferenceLine("x", change.at - 0.5, "change", text, _style(change))


def _style(change: Change) -> Style:
    return "bad" if change.after > change.before else "good"


def _breaks(h: History) -> Iterable[ReferenceLine]:
    """Words only where there is room for them: where two machines take turns, the first break says it."""
    free = 0.0
    for found in h.breaks:
        has_room = found.at >= free
        yield ReferenceLine(
            "x", found.at - 0.5, "break", _truncate(found.why, LONGEST_WHY) if has_room else "", "faint"
        )
        free = found.at + 0.3 * len(h.points) if has_room else free


def _commits(h: History) -> Axis:
    changed: dict[int, Style] = {change.at: _style(change) for change in h.changes}
    ticks = (
        AxisTick(i, _truncate(commit(h.points[i]), LONGEST_NAME), changed.get(i, "")) for i in _labelled_positions(h)
    )
    return Axis(ends=(-1, len(h.points)), ticks=tuple(ticks), are_names=True)


def _values(h: History) -> Axis:
    if not h.is_counted:
        return Axis(f"time against {_truncate(h.baseline, LONGEST_WHY)}", "change", ends=_span(h))
    counts = sorted({v for v in h.values if v is not None})
    named = counts if len(counts) <= MOST_COUNTS else []
    quantity: Quantity = "bytes" if METRICS[h.metric] == "B" else "flop"
    return Axis(quantity=quantity, ends=_span(h), ticks=tuple(AxisTick(v, amount(v, h.metric)) for v in named))


def _span(h: History) -> tuple[float, float]:
    """Room above for the words; intervals that reach far beyond all ratios are cut off."""
    values = [v for v in h.values if v is not None] or [1.0]
    middle = max(abs(v) for v in values) or 1.0
    reach = max((max(values) - min(values)) / 2, LEAST_SPAN * middle)
    ends = [end for c in h.points for end in (c.low, c.high) if end is not None and not h.is_counted]
    low = max(min([*values, *ends]), min(values) - reach)
    high = min(max([*values, *ends]), max(values) + reach)
    rest = max(0.0, LEAST_SPAN * middle - (high - low)) / 2
    height = high - low + 2 * rest
    return low - rest - 0.18 * height, high + rest + 0.3 * height


def _labelled_positions(h: History) -> list[int]:
    """Places of commits on the axis: the changes, the ends, and as many others as can be read."""
    every = -(-len(h.points) // MOST_NAMES)
    needed = sorted({0, len(h.points) - 1, *(change.at for change in h.changes)})
    others = [i for i in range(0, len(h.points), every) if all(abs(i - place) >= every for place in needed)]
    return sorted([*needed, *others])


def _truncate(text: str, longest: int) -> str:
    flat = one_line(text)
    return flat if len(flat) <= longest else flat[: longest - 1] + "…"
