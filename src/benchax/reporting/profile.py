"""A profile in tables: the hottest operations, idle devices, the compiler, what stayed in memory, and the files.

For a profile without operations, the remarks explain why it has no operations, instead of an empty table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median

from benchax.reporting import compile_time, steps
from benchax.reporting import profile_groups as groups
from benchax.reporting.document import (
    Block,
    Document,
    Facts,
    Heading,
    Paragraph,
    Section,
    Table,
    TableCell,
    TableColumn,
    TextRow,
    draw_bars,
    list_lines,
    list_remarks,
)
from benchax.reporting.recording_cost import describe_recording_cost
from benchax.reporting.tables import WHERE, truncate
from benchax.results.profile import Column, Device, Kind, Op, Profile, Timeline
from benchax.source_files import without_folders
from benchax.units import count, percent, plural, seconds, size

COLUMNS = (
    TableColumn("operation", "names", 20, breaks_words=True),
    *map(TableColumn, ("self time", "share", "calls", "a call")),
    WHERE,
)
TOP = 15
"""Operations that are shown without `details`."""
PASSES, ARRAYS, GAPS, RUNS = 5, 5, 3, 8
SCOPE, NAME, HLO = 44, 24, 96
MODULE_AND_NAME = 40
"""Widths to which long texts are cut, in columns of a terminal; with `details` they are not."""
MOST_BARS = 40
"""The most bars of memory over time."""
LEAST_RISE = 0.02
"""The largest bar must exceed the smallest by at least this share, so that noise does not look like mountains."""
MOST_DEVICES = 4
"""The table shows up to this many devices; `memory.csv` has all."""
KINDS: dict[Kind, str] = {
    "live_arrays": "live arrays",
    "in_use": "in use",
    "peak_in_use": "peak in use",
    "resident": "resident",
}


def document(p: Profile, details: bool = False) -> Document:
    """With `details` every operation, uncut, with its line of HLO."""
    title = p.title or "profile"
    if p.split is None:
        blocks: list[Block] = [Heading(title, 1, (_where(p),))]
        if p.recording_cost is not None:
            blocks.append(Paragraph(describe_recording_cost(p.recording_cost, "a call")))
    else:  # the first line below the title says where the time goes
        blocks = [Heading(title, 1, aside=_where(p)), *steps.blocks(p.split, p.recording_cost)]
    if p.ops:
        blocks += [grid(p, details), *_lines(p, details)]
        blocks += groups.blocks(p, details)
    blocks += compile_time.blocks(p, details)
    blocks += [Facts((section,), "words") for section in sections(p)]
    return Document((*blocks, *list_remarks(p.remarks)))


def _where(p: Profile) -> str:
    runs = f"{plural(len(p.runs), 'run')} of programs" if p.runs else ""
    return " · ".join(part for part in (p.backend, runs, plural(p.n_events, "event")) if part)


def grid(p: Profile, details: bool = False) -> Table:
    """One line for each operation, the hottest first; on a page its HLO can be pointed at."""
    shown = p.ops if details else p.ops[:TOP]
    several = len({op.module for op in p.ops}) > 1
    rows: list[tuple[TableCell, ...]] = []
    for op in shown:
        name, *others = _line(op, several, details)
        rows.append((TableCell(name, hint=op.hlo or ""), *map(TableCell, others)))
    return Table(COLUMNS, tuple(rows), _describe_rest(p, details))


def _line(op: Op, several: bool, details: bool) -> tuple[str, ...]:
    name = f"{op.module}: {op.name}" if several and op.module else op.name
    where = " ".join(part for part in (groups.shorten_path(op.source, details), _scope(op, details)) if part)
    return (
        truncate(name, None if details else MODULE_AND_NAME if several else NAME),
        seconds(op.self_s),
        percent(op.share),
        count(op.calls),
        seconds(op.per_call_s),
        truncate(where or op.category, None if details else SCOPE),
    )


def _scope(op: Op, details: bool) -> str:
    """Without the outermost part, which is the program: jit(f)/mm/dot as mm/dot."""
    scope = op.scope or ""
    return scope if details or "/" not in scope else scope.partition("/")[2]


def _describe_rest(p: Profile, details: bool) -> str:
    """Sums the operations that the table does not show."""
    others = () if details else p.ops[TOP:]
    if not others:
        return ""
    together = sum(op.self_s for op in others)
    share = sum(op.share for op in others)
    return f"and {plural(len(others), 'more operation')}: {seconds(together)}, {percent(share)}"


def _lines(p: Profile, details: bool) -> tuple[Block, ...]:
    """The HLO of the hottest few; of all with `details`."""
    shown = [op for op in (p.ops if details else p.ops[:3]) if op.hlo]
    listed = list_lines((truncate(op.hlo or "", None if details else HLO) for op in shown), "faint")
    return (Heading("HLO"), *listed) if listed else ()


def sections(p: Profile) -> list[Section]:
    """All but the operations; a part that holds nothing is left out."""
    parts = [
        ("devices", [row for device in p.devices for row in _device(device)] + _runs(p)),
        ("compiler", _compiler(p)),
        ("memory", _memory(p)),
        ("memory over time", list_memory(p.timeline) if p.timeline else []),
        ("arrays by the line that made them", list_memory_lines(p.timeline) if p.timeline else []),
        ("files", [TextRow(kind, path) for kind, path in p.files.items()]),
    ]
    return [Section(title, tuple(rows)) for title, rows in parts if rows]


def _device(device: Device) -> list[TextRow]:
    share = f", {percent(device.busy_s / device.span_s)} of {seconds(device.span_s)}" if device.span_s else ""
    gaps = [
        TextRow(
            "gap",
            seconds(gap.length_s),
            f"between {truncate(gap.before, NAME)} and {truncate(gap.after, NAME)}",
        )
        for gap in device.gaps[:GAPS]
    ]
    busy = TextRow(device.name, f"busy {seconds(device.busy_s)}{share}", f"idle {seconds(device.idle_s)}")
    return [busy, *_communication(device), *gaps]


def _communication(device: Device) -> list[TextRow]:
    """Returns no rows if the device has no collectives, or if they are unknown."""
    if not device.communication_s:
        return []
    share = f"{seconds(device.communication_s)}, {percent(device.communication_s / device.busy_s)} of busy"
    if device.exposed_s is None:
        return [TextRow("communication", share, "what ran beside it is not known")]
    return [TextRow("communication", share, f"{seconds(device.exposed_s)} of it with nothing else under way")]


def _runs(p: Profile) -> list[TextRow]:
    """Device time of a run, by program: those that took most of it in all first."""
    by_program: dict[str, list[float]] = {}
    for run in p.runs:
        by_program.setdefault(run.module, []).append(run.device_s)
    most = sorted(by_program, key=lambda program: -sum(by_program[program]))
    rows: list[TextRow] = []
    for program in most[:RUNS]:
        times = by_program[program]
        spread = f"{seconds(min(times))} to {seconds(max(times))}, " if len(times) > 1 else ""
        rows.append(
            TextRow(
                f"a run of {truncate(program, NAME)}",
                seconds(median(times)),
                f"{spread}{plural(len(times), 'run')}",
            )
        )
    rest_s = sum(sum(by_program[program]) for program in most[RUNS:])
    more = [TextRow("and", plural(len(most) - RUNS, "more program"), f"{seconds(rest_s)} in all")] if rest_s else []
    return rows + more


def _compiler(p: Profile) -> list[TextRow]:
    if p.compile_s is None:
        return []
    passes = [
        TextRow(truncate(one.name, NAME), seconds(one.self_s), plural(one.calls, "call")) for one in p.passes[:PASSES]
    ]
    return [TextRow("all passes", seconds(p.compile_s), f"{len(p.passes)} of them"), *passes]


def _memory(p: Profile) -> list[TextRow]:
    if p.left_over is None or p.live_bytes_before is None or p.live_bytes_after is None:
        return []
    alive = TextRow("alive before, after", f"{size(p.live_bytes_before)}, {size(p.live_bytes_after)}")
    rows = [
        TextRow("new and alive", f"{one.dtype}{_dimensions(one.shape)}", f"{one.count} ×, {size(one.size_bytes)}")
        for one in p.left_over[:ARRAYS]
    ]
    more = p.left_over[ARRAYS:]
    rest = [TextRow("and", plural(len(more), "more kind"), size(sum(one.size_bytes for one in more)))] if more else []
    return [alive, *rows, *rest]


def _dimensions(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


# ---- memory over time ------------------------------------------------------------------------------------------


def list_memory(t: Timeline) -> list[TextRow]:
    """Describes how memory rose and fell: a line for each column, how it was read, and what no reading saw."""
    if not t.times_s:
        return [TextRow("memory", "not measured", f"because {t.ended_because or 'it was never read'}")]
    shown = _of_few_devices(t.columns)
    left_out = len(t.columns) - len(shown)
    more = [TextRow("and", f"{left_out} more columns", "in memory.csv")] if left_out else []
    return [*(_row(t, column) for column in shown), *more, *_absent(t), _readings(t), _unseen(t)]


def list_memory_lines(t: Timeline) -> list[TextRow]:
    """Draws live memory by line of the user's code, over the readings that asked for lines. It lists the lines that
    held most at some time."""
    rows = [
        TextRow(without_folders(line.source), draw_memory(t.times_s, line.sizes_bytes), _span(t, line.sizes_bytes))
        for line in t.lines[:ARRAYS]
        if any(line.sizes_bytes)
    ]
    if not rows:
        return []
    asked = sum(size is not None for size in t.lines[0].sizes_bytes)
    left = f"; {plural(len(t.lines) - ARRAYS, 'more line')} in memory.csv" if len(t.lines) > ARRAYS else ""
    note = f"live arrays of all devices by the innermost line of yours{left}"
    return [*rows, TextRow("readings", f"{asked} of {len(t.times_s)}", note)]


def _span(t: Timeline, sizes: Sequence[int | None]) -> str:
    """At the end, and at most."""
    known = [(value, time_s) for value, time_s in zip(sizes, t.times_s, strict=True) if value is not None]
    most, when = max(known, key=lambda one: one[0])
    return f"{size(known[-1][0])} at the end, {size(most)} at most, at {seconds(when)}"


def _of_few_devices(columns: Sequence[Column]) -> list[Column]:
    few = list(dict.fromkeys(column.device for column in columns if column.device))[:MOST_DEVICES]
    return [column for column in columns if not column.device or column.device in few]


def _row(t: Timeline, column: Column) -> TextRow:
    known = [(value, time_s) for value, time_s in zip(column.sizes_bytes, t.times_s, strict=True) if value is not None]
    least = min(value for value, _ in known)
    most, when = max(known, key=lambda one: one[0])
    spread = size(most) if least == most else f"{size(least)} to {size(most)}, most at {seconds(when)}"
    since = " since the process began" if column.kind == "peak_in_use" else ""
    if column.kind == "resident":
        spread += ", with what the profiler records"
    return TextRow(
        f"{KINDS[column.kind]} {column.device}".strip(), draw_memory(t.times_s, column.sizes_bytes), spread + since
    )


def draw_memory(times_s: Sequence[float], sizes: Sequence[int | None], longest: int = MOST_BARS) -> str:
    """A line of bars: two readings or more for each, if they are evenly spaced.

    A bar shows the largest value of its piece of time, so that no recorded peak is lost. A piece without readings is ·.
    """
    pieces = max(1, min(longest, len(times_s) // 2))
    begin, span = times_s[0], times_s[-1] - times_s[0]
    greatest: list[int | None] = [None] * pieces
    for time_s, value in zip(times_s, sizes, strict=True):
        at = min(pieces - 1, int((time_s - begin) / span * pieces)) if span else 0
        if value is not None:
            greatest[at] = max(value, greatest[at] or 0)
    known = [value for value in sizes if value is not None]
    low = min(known, default=0)
    above = max(max(known, default=0) - low, low * LEAST_RISE, 1)
    return draw_bars(None if value is None else (value - low) / above for value in greatest)


def _absent(t: Timeline) -> Iterable[TextRow]:
    if silent := t.without("in_use"):
        why = f"because memory_stats() of {', '.join(silent[:MOST_DEVICES])} is empty"
        yield TextRow(KINDS["in_use"], "not available on this backend", why)


def _readings(t: Timeline) -> TextRow:
    if t.interval_s is None or t.longest_gap_s is None or t.share is None:
        return TextRow("readings", str(len(t.times_s)))
    apart = f"{seconds(t.interval_s)} apart, at most {seconds(t.longest_gap_s)}"
    return TextRow("readings", f"{len(t.times_s)}, {apart}", f"they took {percent(t.share)} of the time")


def _unseen(t: Timeline) -> TextRow:
    where = "resident" if t.without("in_use") else "in use"
    return TextRow("not seen", "peaks between two readings", f"temporaries of programs are in {where!r} only")
