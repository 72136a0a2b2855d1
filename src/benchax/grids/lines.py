"""A grid as lines: the time of each function over the data, with intervals, and the time limit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from benchax.reporting.chart import Axis, AxisTick, Chart, Line, Mark, Points, ReferenceLine
from benchax.reporting.tables import one_line
from benchax.units import seconds

if TYPE_CHECKING:
    from benchax.grids.plan import Label
    from benchax.grids.result import GridResult


def chart_lines(g: GridResult) -> Chart:
    """A line per function over the data, which is a logarithmic axis where its labels are numbers; and the limit."""
    # bool is an int, and a label of that kind no size.
    sizes = [d for d in g.data if isinstance(d, int | float) and not isinstance(d, bool) and 0 < d < math.inf]
    is_of_sizes = len(sizes) == len(g.data) > 1
    places = [float(d) for d in sizes] if is_of_sizes else [float(i) for i in range(len(g.data))]
    order = sorted(range(len(places)), key=places.__getitem__)
    marks = [mark for f in g.functions for mark in _line(g, f, [(places[i], g.data[i]) for i in order])]
    if g.timeout_s is not None:
        limit = f"time limit {seconds(g.timeout_s)}"
        marks.append(ReferenceLine("y", g.timeout_s, "change", limit, "bad"))
    ticks = () if is_of_sizes else tuple(AxisTick(i, one_line(str(d))) for i, d in enumerate(g.data))
    x = Axis(g.axis, is_log=is_of_sizes, ticks=ticks, are_names=not is_of_sizes)
    is_timed = any(isinstance(mark, Line) for mark in marks)  # a logarithm of nothing cannot be drawn
    title = f"time over {g.axis}"
    return Chart(x, Axis("a call", "seconds", is_log=is_timed), tuple(marks), title, has_series=True, is_broad=True)


def _line(g: GridResult, function: str, points: Sequence[tuple[float, Label]]) -> Iterator[Mark]:
    """Cells without a time are marked at the edge, with their status."""
    found = [(place, g.by_key[function, d], g.by_key[function, d].summary_by(g.timer)) for place, d in points]
    known = [(place, s) for place, _, s in found if s is not None]
    if known:
        yield Line(tuple(p for p, _ in known), tuple(s.median_s for _, s in known), function)
    ends = tuple(None if s is None or s.low_s is None or s.high_s is None else (s.low_s, s.high_s) for _, _, s in found)
    values = tuple(None if s is None else s.median_s for _, _, s in found)
    texts = tuple(cell.status.replace("_", " ") if s is None else function for _, cell, s in found)
    yield Points(tuple(p for p, _, _ in found), values, ends, label=function, texts=texts)
