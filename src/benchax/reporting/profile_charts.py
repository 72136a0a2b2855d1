"""A profile as charts: what ran when on each device and thread, and where the time goes, by scope and by line.

Idle devices have separate lanes, with the operations before and after the idle time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from benchax.reporting import profile
from benchax.reporting.chart import Axis, AxisTick, Bars, Chart, Line, Tree
from benchax.reporting.document import Document, Heading
from benchax.reporting.styles import Style
from benchax.reporting.tables import truncate
from benchax.reporting.trees import grow
from benchax.results.profile import Device, Lane, Op, Profile, Timeline
from benchax.source_files import NOT_YOURS, without_folders
from benchax.units import plural, seconds

MOST_DEPTH = 6
"""The timeline omits calls inside more than this many others."""
LONGEST_NAME = 40
MOST_MEMORY_LINES = 6
STYLES: tuple[Style, ...] = ("", "info")
"""Styles of calls, alternating with their depth."""


def document(p: Profile) -> Document:
    """Shows everything that a terminal shows, in full, with the charts after its heading."""
    head, *rest = profile.document(p, details=True).blocks
    drawn = [*([timeline] if (timeline := chart_timeline(p)) else []), *chart_trees(p.ops)]
    drawn += [chart_memory(p.timeline)] if p.timeline and len(p.timeline.times_s) > 1 else []
    drawn += [chart_memory_lines(p.timeline)] if p.timeline and p.timeline.lines else []
    return Document((head, *drawn, *([Heading("operations")] if drawn and p.ops else []), *rest))


# ---- what ran when ----------------------------------------------------------------------------------------------


def chart_timeline(p: Profile) -> Chart | None:
    """Draws a row for each depth of each thread, and for the idle time of each device. Returns None if no call is
    known."""
    rows: list[str] = []
    marks: list[Bars] = []
    for device in dict.fromkeys(lane.device for lane in p.lanes):
        marks += _idle(next((d for d in p.devices if d.name == device), None), rows)
        for lane in (lane for lane in p.lanes if lane.device == device):
            marks += _calls(lane, rows)
    if not marks:
        return None
    n, shown = sum(lane.n_calls for lane in p.lanes), sum(len(mark.places) for mark in marks if mark.label == "calls")
    left = f"; the longest {shown} of {plural(n, 'call')}" if shown < n else ""
    names = tuple(AxisTick(i, name) for i, name in enumerate(rows))
    note = f"orange: the device was idle (the longest times){left}"
    time = Axis("since the recording began", "seconds")
    return Chart(time, Axis(are_names=True, ticks=names), tuple(marks), "timeline", note=note, is_broad=True)


def _idle(device: Device | None, rows: list[str]) -> Iterator[Bars]:
    if device is None or not device.gaps:
        return
    rows.append(f"{device.name} idle")
    starts = tuple(gap.start_s for gap in device.gaps)
    ends = tuple(gap.start_s + gap.length_s for gap in device.gaps)
    texts = tuple(f"idle {seconds(gap.length_s)}, between {gap.before} and {gap.after}" for gap in device.gaps)
    yield Bars((float(len(rows) - 1),) * len(starts), starts, ends, "x", label="idle", style="warning", texts=texts)


def _calls(lane: Lane, rows: list[str]) -> Iterator[Bars]:
    for depth in range(min(MOST_DEPTH, max(lane.depths, default=-1) + 1)):
        chosen = [i for i, found in enumerate(lane.depths) if found == depth]
        if not chosen:
            continue
        # A name for the first row of a thread only: the others are what is inside.
        name = truncate(f"{lane.device} {lane.thread}", LONGEST_NAME)
        rows.append(f"… inside {depth}" if depth else name)
        starts, ends = (tuple(column[i] for i in chosen) for column in (lane.starts_s, lane.ends_s))
        texts = tuple(lane.names[i] for i in chosen)
        style = STYLES[depth % len(STYLES)]
        places = (float(len(rows) - 1),) * len(chosen)
        yield Bars(places, starts, ends, "x", label="calls", style=style, texts=texts)


# ---- where the time goes ----------------------------------------------------------------------------------------


def chart_trees(ops: Sequence[Op]) -> Iterator[Chart]:
    """Self time by program and named scope, and by file and line, where the trace says these."""
    ways: tuple[tuple[str, Callable[[Op], list[str]]], ...] = (("by scope", _scope), ("by your line", _line))
    for title, path_of in ways:
        if any(len(path_of(op)) > 1 for op in ops):
            roots = grow(([*path_of(op), op.name], op.self_s, _describe(op)) for op in ops)
            yield Chart(Axis(), Axis(), (Tree(roots),), f"self time {title}")


def _describe(op: Op) -> str:
    return " · ".join(filter(None, (plural(op.calls, "call"), op.source, op.shape)))


def _scope(op: Op) -> list[str]:
    # The first part is the program, the last one JAX's name of the operation.
    parts = [part for part in (op.scope or "").split("/") if part]
    return [op.module or "(unknown program)", *parts[1:]]


def _line(op: Op) -> list[str]:
    file = (op.source or "").rpartition(":")[0]
    return [file, without_folders(op.source)] if file else [NOT_YOURS]


# ---- memory -----------------------------------------------------------------------------------------------------


def chart_memory(t: Timeline) -> Chart:
    """Readings over time; a gap where one was not made."""
    named = [(" ".join(filter(None, (profile.KINDS[one.kind], one.device))), one.sizes_bytes) for one in t.columns]
    return _over_time(t, named, "memory over time", t.incomplete)


def chart_memory_lines(t: Timeline) -> Chart:
    """Live arrays by the line that made them, at the readings that asked for lines."""
    named = [(without_folders(line.source), line.sizes_bytes) for line in t.lines[:MOST_MEMORY_LINES]]
    left = len(t.lines) - len(named)
    note = f"the {len(named)} that held most at some time, of {len(t.lines)}" if left > 0 else ""
    return _over_time(t, named, "live arrays by the line that made them", note)


def _over_time(t: Timeline, named: Sequence[tuple[str, Sequence[int | None]]], title: str, note: str) -> Chart:
    lines: list[Line] = []
    for label, sizes in named:
        known = [(at, size) for at, size in zip(t.times_s, sizes, strict=True) if size is not None]
        if known:
            lines.append(Line(tuple(at for at, _ in known), tuple(float(size) for _, size in known), label))
    axis = Axis("since the recording began", "seconds")
    return Chart(axis, Axis("", "bytes"), tuple(lines), title, has_series=True, note=note)
