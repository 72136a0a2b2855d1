"""One measurement as charts: readings in their order and how they are spread, stages one after the other, memory.

The note of a chart lists omitted readings: those beyond its axis, and those thinned out.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise
from statistics import median

from benchax.model import Measurement, Memory, Samples, Stages
from benchax.reporting import measurement
from benchax.reporting.chart import Axis, AxisTick, Bars, Chart, Line, Mark, Note, Points, ReferenceLine, Shade
from benchax.reporting.document import Document, Facts, Heading, Remarks
from benchax.reporting.styles import Style
from benchax.stats.summary import Summary
from benchax.units import plural, seconds, seconds_range

# Thins out readings: if there are very many, a chart shows some of them and says how many.


def thin(values: Sequence[float], most: int) -> list[int]:
    """The places of at most `most` of them, in order: the least and the greatest of each group of neighbours, so that
    no outlier gets lost. All where they are no more than that."""
    if len(values) <= most:
        return list(range(len(values)))
    groups = max(1, most // 2)
    edges = [len(values) * i // groups for i in range(groups + 1)]
    chosen: set[int] = set()
    for first, end in pairwise(edges):
        group = range(first, end)
        chosen |= {min(group, key=values.__getitem__), max(group, key=values.__getitem__)}
    return sorted(chosen)


def describe_thinning(shown: int, n: int, what: str) -> str:
    """400 of 1000000 readings are drawn: the least and the greatest of each group of neighbours"""
    return f"{shown} of {plural(n, what)} are drawn: the least and the greatest of each group of neighbours"


MOST_READINGS = 2000
"""The most readings of one timer in one chart."""
MOST_BINS = 40
REACH = 4.0
"""The axis of times extends this many interquartile ranges beyond the quartiles, or to the last reading. Otherwise one
reading of a second would turn the others, of microseconds, into a line."""
LEAST_REACH = 0.02
"""The axis extends at least this share of the median."""
LEAST_STRETCH, MOST_STRETCHES = 10, 20
"""The line of drift connects medians of this many neighbors; medians of fewer would show noise."""


def document(m: Measurement, most: int = MOST_READINGS) -> Document:
    """The full form of one measurement, with its charts after the numbers.

    Args:
        most: the maximum number of readings to draw for each timer.
    """
    found = measurement.document(m, is_full=True).blocks
    before = [block for block in found if isinstance(block, Heading) and block.level == 1]
    after = [block for block in found if isinstance(block, Facts)]
    rest = [block for block in found if isinstance(block, Remarks)]
    title = [Heading("remarks")] if rest else []
    return Document((*before, *after, *charts(m, most), *title, *rest))


def charts(m: Measurement, most: int = MOST_READINGS) -> Iterator[Chart]:
    for timer in dict.fromkeys(samples.timer for samples in m.samples):
        if (summary := m.find_summary(timer)) is not None:
            yield from _chart_timer(m.series_of(timer), summary, most)
    if (stages := chart_stages(m.stages)) is not None:
        yield stages
    if (memory := chart_memory(m.memory)) is not None:
        yield memory


# ---- readings ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Readings:
    """The readings of all processes, one after the other."""

    times_s: tuple[float, ...]
    disturbed: tuple[bool, ...]
    starts: tuple[int, ...]
    """The index of the first reading of each process."""


def _join(series: Sequence[Samples]) -> _Readings:
    times = [samples.per_call_s for samples in series]
    disturbed = [samples.disturbed or (False,) * len(samples.elapsed_s) for samples in series]
    starts = [0, *accumulate(map(len, times))][:-1]
    return _Readings(tuple(chain(*times)), tuple(chain(*disturbed)), tuple(starts))


def _chart_timer(series: Sequence[Samples], s: Summary, most: int) -> tuple[Chart, Chart]:
    """The readings in the order in which they were taken, and their distribution on the same axis."""
    found = _join(series)
    ends = _ends(found.times_s, s)
    per_call = Axis("per call", "seconds", ends=ends)
    level: list[Mark] = [ReferenceLine("y", s.median_s, style="title")]
    if s.low_s is not None and s.high_s is not None:
        level.insert(0, Shade("y", s.low_s, s.high_s))
    name = series[0].timer
    marks = (*level, *_processes(found), *_points(found, most), *_drift(found))
    order = Chart(
        Axis("readings in the order taken"), per_call, marks,
        f"{name}: {plural(len(found.times_s), 'reading')}", has_legend=True, note=_describe(found, s, ends, most),
    )  # fmt: skip
    spread = Chart(Axis("readings"), per_call, (*level, _histogram(found.times_s, ends)), f"{name}: distribution")
    return order, spread


def _ends(times_s: Sequence[float], s: Summary) -> tuple[float, float]:
    iqr, known = s.q75_s - s.q25_s, [end for end in (s.low_s, s.high_s) if end is not None]
    low = min([max(min(times_s), s.q25_s - REACH * iqr), *known])
    high = max([min(max(times_s), s.q75_s + REACH * iqr), *known])
    room = max(0.05 * (high - low), LEAST_REACH * abs(s.median_s), 1e-12)
    return low - room, high + room


def _points(found: _Readings, most: int) -> Iterator[Points]:
    shown = thin(found.times_s, most)
    kinds: tuple[tuple[str, Style, bool], ...] = (("undisturbed", "", False), ("preempted", "warning", True))
    for label, style, is_disturbed in kinds:
        places = [i for i in shown if found.disturbed[i] == is_disturbed]
        if places:
            values = tuple(found.times_s[i] for i in places)
            symbol = "diamond" if is_disturbed else "circle"
            yield Points(tuple(places), values, label=label, style=style, symbol=symbol)


def _processes(found: _Readings) -> Iterator[ReferenceLine]:
    for n, start in enumerate(found.starts[1:], 2):
        yield ReferenceLine("x", start - 0.5, "break", f"process {n}" if len(found.starts) <= 8 else "", "faint")


def _drift(found: _Readings) -> Iterator[Line]:
    """The median of each stretch of neighbours, within a process."""
    ends = [*found.starts[1:], len(found.times_s)]
    for first, end in zip(found.starts, ends, strict=True):
        if end - first < 3 * LEAST_STRETCH:
            continue
        n = min(MOST_STRETCHES, (end - first) // LEAST_STRETCH)
        stretches = list(pairwise(first + (end - first) * i // n for i in range(n + 1)))
        middles = tuple((a + b - 1) / 2 for a, b in stretches)
        yield Line(middles, tuple(median(found.times_s[a:b]) for a, b in stretches), "medians of neighbours", "info")


def _describe(found: _Readings, s: Summary, ends: tuple[float, float], most: int) -> str:
    """Describes the marks, and what the chart omits."""
    n = len(found.times_s)
    beyond = [t for t in found.times_s if not ends[0] <= t <= ends[1]]
    texts = ["line: median" + ("; shade: its 95 % interval" if s.low_s is not None else "")]
    if beyond:
        least, most_s = min(beyond), max(beyond)
        span = seconds_range(least, most_s) if least < most_s else seconds(least)
        texts.append(f"{plural(len(beyond), 'reading')} beyond the axis: {span}")
    if n > most:
        texts.append(describe_thinning(len(thin(found.times_s, most)), n, "reading"))
    return "; ".join(texts)


def _histogram(times_s: Sequence[float], ends: tuple[float, float]) -> Bars:
    """Counts readings in bins of equal width (Freedman & Diaconis 1981) along the axis. Omits readings beyond it."""
    inside = sorted(t for t in times_s if ends[0] <= t <= ends[1])
    iqr = inside[(3 * len(inside)) // 4 - (len(inside) % 4 == 0)] - inside[len(inside) // 4]
    width = 2 * iqr / len(inside) ** (1 / 3)
    bins = min(MOST_BINS, max(5, math.ceil((ends[1] - ends[0]) / width))) if width > 0 else 5
    step = (ends[1] - ends[0]) / bins
    counts = [0] * bins
    for t in inside:
        counts[min(bins - 1, int((t - ends[0]) / step))] += 1
    places = tuple(ends[0] + (i + 0.5) * step for i in range(bins))
    return Bars(places, (0.0,) * bins, tuple(map(float, counts)), "x", step * 0.96, "readings")


# ---- what is there once -----------------------------------------------------------------------------------------


def chart_stages(s: Stages) -> Chart | None:
    """A waterfall: each stage begins where the one before it ended. None if nothing was measured."""
    listed = [
        ("transfer in", s.transfer_in_s), ("trace", s.trace_s), ("lower", s.lower_s), ("compile", s.compile_s),
        ("first run", s.first_run_s), ("transfer out", s.transfer_out_s),
    ]  # fmt: skip
    known = [(row, time_s) for row, (_, time_s) in enumerate(listed) if time_s is not None]
    if not known:
        return None
    ends = list(accumulate(time_s for _, time_s in known))
    lows = tuple(end - time_s for end, (_, time_s) in zip(ends, known, strict=True))
    bars = Bars(
        tuple(float(row) for row, _ in known), lows, tuple(ends), "x", texts=tuple(seconds(t) for _, t in known)
    )
    absent = [Note(0, row, "not measured", "faint") for row, (_, time_s) in enumerate(listed) if time_s is None]
    return Chart(
        Axis("one after the other", "seconds", ends=(0.0, 1.02 * ends[-1] or 1.0)),
        _name_rows([name for name, _ in listed]), (bars, *absent), "once",
    )  # fmt: skip


def chart_memory(mem: Memory) -> Chart | None:
    """Memory that XLA planned, by kind, and the observed rise. None if neither is known."""
    planned = [
        ("arguments", mem.argument_bytes), ("outputs", mem.output_bytes), ("temporaries", mem.temp_bytes),
        ("constants", mem.constant_bytes), ("reused by donation", mem.alias_bytes),
        ("planned peak", mem.predicted_peak_bytes),
    ]  # fmt: skip
    observed = [("compiled call", mem.compiled_rise_bytes), ("eager call", mem.eager_rise_bytes)]
    rows = [(*pair, "") for pair in planned if pair[1] is not None]
    rows += [(*pair, "info") for pair in observed if pair[1] is not None]
    if not rows:
        return None
    kinds: tuple[tuple[str, Style], ...] = (("planned", ""), ("observed rise", "info"))
    marks = [
        Bars(
            tuple(float(i) for i, row in enumerate(rows) if row[2] == style), (0.0,) * len(chosen), tuple(chosen), "x",
            label=label, style=style,
        )
        for label, style in kinds
        if (chosen := [float(row[1] or 0) for row in rows if row[2] == style])
    ]  # fmt: skip
    most = max(float(row[1] or 0) for row in rows)
    axis = Axis("", "bytes", ends=(0.0, 1.05 * most or 1.0))
    return Chart(axis, _name_rows([row[0] for row in rows]), tuple(marks), "memory", has_legend=len(marks) > 1)


def _name_rows(names: Sequence[str]) -> Axis:
    return Axis(are_names=True, ticks=tuple(AxisTick(i, name) for i, name in enumerate(names)))
