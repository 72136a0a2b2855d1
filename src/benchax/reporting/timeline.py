"""Memory over time as lines of bars: how it rose and fell, its least and its most, and what nobody saw.

A bar is the greatest reading of its piece of time, so that no peak that was read is lost; · where none was read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchax.reporting.document import TextRow
from benchax.results.timeline import Column, Kind, Timeline
from benchax.units import percent, seconds, size

BARS, MISSING = "▁▂▃▄▅▆▇█", "·"
LONGEST = 40
LEAST_SPAN = 0.02
"""The greatest bar stands for so much more than the least, as a part of it: noise must not look like mountains."""
DEVICES = 4
"""So many are shown; `memory.csv` has all."""
NAMES: dict[Kind, str] = {
    "live_arrays": "live arrays",
    "in_use": "in use",
    "peak_in_use": "peak in use",
    "resident": "resident",
}


def rows(t: Timeline) -> list[TextRow]:
    """A line for each column, and how it was read."""
    if not t.times_s:
        return [TextRow("memory", "not measured", f"because {t.ended_because or 'it was never read'}")]
    shown = _of_few_devices(t.columns)
    left_out = len(t.columns) - len(shown)
    more = [TextRow("and", f"{left_out} more columns", "in memory.csv")] if left_out else []
    return [*(_row(t, column) for column in shown), *more, *_absent(t), _readings(t), _unseen(t)]


def _of_few_devices(columns: Sequence[Column]) -> list[Column]:
    few = list(dict.fromkeys(column.device for column in columns if column.device))[:DEVICES]
    return [column for column in columns if not column.device or column.device in few]


def _row(t: Timeline, column: Column) -> TextRow:
    known = [(value, time_s) for value, time_s in zip(column.sizes_bytes, t.times_s, strict=True) if value is not None]
    least = min(value for value, _ in known)
    most, when = max(known, key=lambda one: one[0])
    spread = size(most) if least == most else f"{size(least)} to {size(most)}, most at {seconds(when)}"
    since = " since the process began" if column.kind == "peak_in_use" else ""
    if column.kind == "resident":
        spread += ", with what the profiler records"
    return TextRow(f"{NAMES[column.kind]} {column.device}".strip(), bars(t.times_s, column.sizes_bytes), spread + since)


def bars(times_s: Sequence[float], sizes: Sequence[int | None], longest: int = LONGEST) -> str:
    """Two readings or more for each bar, as far as they are evenly spaced."""
    pieces = max(1, min(longest, len(times_s) // 2))
    begin, span = times_s[0], times_s[-1] - times_s[0]
    greatest: list[int | None] = [None] * pieces
    for time_s, value in zip(times_s, sizes, strict=True):
        at = min(pieces - 1, int((time_s - begin) / span * pieces)) if span else 0
        if value is not None:
            greatest[at] = max(value, greatest[at] or 0)
    known = [value for value in sizes if value is not None]
    low = min(known, default=0)
    above = max(max(known, default=0) - low, low * LEAST_SPAN, 1)
    return "".join(MISSING if value is None else _bar((value - low) / above) for value in greatest)


def _bar(share: float) -> str:
    return BARS[min(len(BARS) - 1, int(share * len(BARS)))]


def _absent(t: Timeline) -> Iterable[TextRow]:
    if silent := t.without("in_use"):
        why = f"because memory_stats() of {', '.join(silent[:DEVICES])} is empty"
        yield TextRow(NAMES["in_use"], "not available on this backend", why)


def _readings(t: Timeline) -> TextRow:
    if t.interval_s is None or t.longest_gap_s is None or t.share is None:
        return TextRow("readings", str(len(t.times_s)))
    apart = f"{seconds(t.interval_s)} apart, at most {seconds(t.longest_gap_s)}"
    return TextRow("readings", f"{len(t.times_s)}, {apart}", f"they took {percent(t.share)} of the time")


def _unseen(t: Timeline) -> TextRow:
    where = "resident" if t.without("in_use") else "in use"
    return TextRow("not seen", "peaks between two readings", f"temporaries of programs are in {where!r} only")
