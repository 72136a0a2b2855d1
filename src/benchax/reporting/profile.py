"""A profile in tables: the hottest operations, idle devices, the compiler, what stayed in memory, and the files.

For a profile without operations, the remarks explain why it has no operations, instead of an empty table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from benchax.grouping import group_by
from benchax.printable import list_some
from benchax.reporting.document import (
    Axis,
    Bars,
    Block,
    Chart,
    Document,
    Facts,
    Heading,
    Line,
    Paragraph,
    Section,
    Style,
    Table,
    TableCell,
    TableColumn,
    TextRow,
    Tree,
    draw_bars,
    grow,
    list_lines,
    list_remarks,
    name_places,
    tabulate,
)
from benchax.reporting.tables import (
    BOUND,
    LINE_NAMES,
    NOT_MEASURED,
    SCOPE_NAMES,
    WHERE,
    describe_rates,
    truncate,
)
from benchax.results.inspection import Peaks
from benchax.results.profile import (
    Column,
    Device,
    Gap,
    Kind,
    Lane,
    LineChange,
    OneStep,
    Op,
    OpChange,
    PartKind,
    PartLine,
    Profile,
    ProfileChange,
    ProgramSize,
    ProgramsPerStep,
    RecordingCost,
    StepPart,
    StepSplit,
    Timeline,
)
from benchax.source_files import NOT_YOURS, without_folders
from benchax.units import count, percent, plural, rate, seconds, size

PLACE = replace(WHERE, is_cut=True)
"""A file, its line, and a scope: a row stays one line."""
COLUMNS = (
    TableColumn("operation", "names", 20, is_cut=True),
    *map(TableColumn, ("self time", "share", "calls", "a call")),
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
MEMORY_KINDS: dict[Kind, str] = {
    "live_arrays": "live arrays",
    "in_use": "in use",
    "peak_in_use": "peak in use",
    "resident": "resident",
}
NOTES_OF_KINDS: dict[Kind, str] = {
    "peak_in_use": " since the process began",
    "resident": ", with what the profiler records",
}


def document(p: Profile, details: bool = False) -> Document:
    """With `details` every operation, uncut, with its line of HLO."""
    runs = f"{plural(len(p.runs), 'run')} of programs" if p.runs else ""
    where = " · ".join(filter(None, (p.backend, runs, plural(p.n_events, "event"))))
    blocks: list[Block] = [Heading(f"{p.title or 'profile'}: {answer(p)}", 1, (where,))]
    if p.split is not None:
        blocks += describe_steps(p.split, p.recording_cost)
    elif p.recording_cost is not None:
        blocks.append(Paragraph(describe_recording_cost(p.recording_cost, "a call")))
    if p.ops:
        blocks += [grid(p, details), *_lines(p, details)]
        blocks += list_groups(p, details)
    blocks += list_compile_time(p, details)
    blocks += [Facts((section,), "words") for section in sections(p)]
    return Document((*blocks, *list_remarks(p.remarks)))


def answer(p: Profile) -> str:
    """Where the time goes: 58 % of a step is data loading at loader.py:31; or 81 % of it is fusion at model.py:12."""
    if p.split is not None:
        return describe_split(p.split)
    if not p.ops:
        return "no operation was recorded"
    hottest = p.ops[0]
    at = f" at {without_folders(hottest.source)}" if hottest.source else ""
    return f"{percent(hottest.share)} of its work is {truncate(hottest.name, NAME)}{at}"


def grid(p: Profile, details: bool = False) -> Table:
    """One line for each operation, the hottest first; on a page its HLO can be pointed at. The note sums the others."""
    shown, others = (p.ops, ()) if details else (p.ops[:TOP], p.ops[TOP:])
    several = len({op.module for op in p.ops}) > 1
    table = tabulate((*COLUMNS, WHERE if details else PLACE), [_line(op, several, details) for op in shown])
    rows = tuple((replace(row[0], hint=op.hlo or ""), *row[1:]) for op, row in zip(shown, table.rows, strict=True))
    time, share = seconds(sum(op.self_s for op in others)), percent(sum(op.share for op in others))
    more = f"and {plural(len(others), 'more operation')}: {time}, {share}" if others else ""
    return replace(table, rows=rows, note=more)


def _line(op: Op, several: bool, details: bool) -> tuple[str, ...]:
    name = f"{op.module}: {op.name}" if several and op.module else op.name
    scope = op.scope or ""
    # Drop the outermost part, which is the program: jit(f)/mm/dot becomes mm/dot.
    inside = scope if details or "/" not in scope else scope.partition("/")[2]
    where = " ".join(filter(None, (shorten_path(op.source, details), inside)))
    return (
        truncate(name, None if details else MODULE_AND_NAME if several else NAME),
        seconds(op.self_s),
        percent(op.share),
        count(op.calls),
        seconds(op.per_call_s),
        truncate(where or op.category, None if details else SCOPE),
    )


def _lines(p: Profile, details: bool) -> tuple[Block, ...]:
    """The HLO of the hottest few; of all with `details`."""
    texts = (op.hlo for op in (p.ops if details else p.ops[:3]) if op.hlo)
    listed = list_lines((truncate(text, None if details else HLO) for text in texts), "faint")
    return (Heading("HLO"), *listed) if listed else ()


def sections(p: Profile) -> list[Section]:
    """All but the operations; a part that holds nothing is left out."""
    parts: tuple[tuple[str, Iterable[TextRow]], ...] = (
        ("devices", (*(row for device in p.devices for row in _device(device)), *_runs(p))),
        ("compiler", _compiler(p)),
        ("memory", _memory(p)),
        ("memory over time", list_memory(p.timeline) if p.timeline else ()),
        ("arrays by the line that made them", list_memory_lines(p.timeline) if p.timeline else ()),
        ("files", (TextRow(kind, path) for kind, path in p.files.items())),
    )
    return [section for title, rows in parts if (section := Section(title, tuple(rows))).rows]


def _device(device: Device) -> Iterator[TextRow]:
    share = f", {percent(device.busy_s / device.span_s)} of {seconds(device.span_s)}" if device.span_s else ""
    yield TextRow(device.name, f"busy {seconds(device.busy_s)}{share}", f"idle {seconds(device.idle_s)}")
    if device.communication_s:
        spent = f"{seconds(device.communication_s)}, {percent(device.communication_s / device.busy_s)} of busy"
        exposed = "" if device.exposed_s is None else f"{seconds(device.exposed_s)} of it while nothing else ran"
        yield TextRow("communication", spent, exposed or "what ran at the same time is not known")
    for gap in device.gaps[:GAPS]:
        names = (truncate(name, NAME) for name in (gap.before, gap.after))
        yield TextRow("gap", seconds(gap.length_s), f"between {' and '.join(names)}")


def _runs(p: Profile) -> Iterator[TextRow]:
    """Device time of a run, by program: those that took most of it in all first."""
    by_program = {name: [run.device_s for run in runs] for name, runs in group_by(p.runs, lambda r: r.module).items()}
    most = sorted(by_program.items(), key=lambda found: -sum(found[1]))
    for program, times in most[:RUNS]:
        spread = f"{seconds(min(times))} to {seconds(max(times))}, " if len(times) > 1 else ""
        name = f"a run of {truncate(program, NAME)}"
        yield TextRow(name, seconds(median(times)), f"{spread}{plural(len(times), 'run')}")
    if rest_s := sum(sum(times) for _, times in most[RUNS:]):
        yield TextRow("and", plural(len(most) - RUNS, "more program"), f"{seconds(rest_s)} in all")


def _compiler(p: Profile) -> Iterator[TextRow]:
    if p.compile_s is not None:
        yield TextRow("all passes", seconds(p.compile_s), f"{len(p.passes)} of them")
        for one in p.passes[:PASSES]:
            yield TextRow(truncate(one.name, NAME), seconds(one.self_s), plural(one.calls, "call"))


def _memory(p: Profile) -> Iterator[TextRow]:
    if p.left_over is None or p.live_bytes_before is None or p.live_bytes_after is None:
        return
    yield TextRow("alive before, after", f"{size(p.live_bytes_before)}, {size(p.live_bytes_after)}")
    for one in p.left_over[:ARRAYS]:
        array = f"{one.dtype}[{','.join(map(str, one.shape))}]"
        yield TextRow("new and alive", array, f"{one.count} ×, {size(one.size_bytes)}")
    if more := p.left_over[ARRAYS:]:
        yield TextRow("and", plural(len(more), "more kind"), size(sum(one.size_bytes for one in more)))


# ---- memory over time ------------------------------------------------------------------------------------------


def list_memory(t: Timeline) -> Iterator[TextRow]:
    """Describes how memory rose and fell: a line for each column, how it was read, and what no reading saw."""
    if not t.times_s:
        yield TextRow("memory", "not measured", f"because {t.ended_because or 'it was never read'}")
        return
    few = list(dict.fromkeys(column.device for column in t.columns if column.device))[:MOST_DEVICES]
    shown = [column for column in t.columns if not column.device or column.device in few]
    yield from (_row(t, column) for column in shown)
    if left_out := len(t.columns) - len(shown):
        yield TextRow("and", f"{left_out} more columns", "in memory.csv")
    if silent := t.without("in_use"):
        why = f"because memory_stats() of {', '.join(silent[:MOST_DEVICES])} is empty"
        yield TextRow(MEMORY_KINDS["in_use"], "not available on this backend", why)
    apart = f", {seconds(t.interval_s)} apart, at most {seconds(t.longest_gap_s or 0.0)}" if t.interval_s else ""
    taken = "" if t.share is None else f"they took {percent(t.share)} of the time"
    yield TextRow("readings", f"{len(t.times_s)}{apart}", taken)
    where = "resident" if silent else "in use"
    yield TextRow("not seen", "peaks between two readings", f"temporaries of programs are in {where!r} only")


def list_memory_lines(t: Timeline) -> Iterator[TextRow]:
    """Draws live memory by line of the user's code, over the readings that asked for lines. It lists the lines that
    held most at some time."""
    listed = [line for line in t.lines[:ARRAYS] if any(line.sizes_bytes)]
    for line in listed:
        known, most, when_s = _find_most(t, line.sizes_bytes)
        span = f"{size(known[-1])} at the end, {size(most)} at most, at {seconds(when_s)}"
        yield TextRow(without_folders(line.source), draw_memory(t.times_s, line.sizes_bytes), span)
    if listed:
        asked = sum(size is not None for size in t.lines[0].sizes_bytes)
        left = f"; {plural(len(t.lines) - ARRAYS, 'more line')} in memory.csv" if len(t.lines) > ARRAYS else ""
        note = f"live arrays of all devices by the innermost line of yours{left}"
        yield TextRow("readings", f"{asked} of {len(t.times_s)}", note)


def _find_most(t: Timeline, sizes: Sequence[int | None]) -> tuple[list[int], int, float]:
    """(known sizes, the largest, when it was read first)"""
    known = [(value, time_s) for value, time_s in zip(sizes, t.times_s, strict=True) if value is not None]
    return [value for value, _ in known], *max(known, key=lambda one: one[0])


def _row(t: Timeline, column: Column) -> TextRow:
    known, most, when_s = _find_most(t, column.sizes_bytes)
    least = min(known)
    spread = size(most) if least == most else f"{size(least)} to {size(most)}, most at {seconds(when_s)}"
    spread += NOTES_OF_KINDS.get(column.kind, "")
    name = f"{MEMORY_KINDS[column.kind]} {column.device}".strip()
    return TextRow(name, draw_memory(t.times_s, column.sizes_bytes), spread)


def draw_memory(times_s: Sequence[float], sizes: Sequence[int | None]) -> str:
    """A line of bars: two readings or more for each, if they are evenly spaced.

    A bar shows the largest value of its piece of time, so that no recorded peak is lost. A piece without readings is ·.
    """
    pieces = max(1, min(MOST_BARS, len(times_s) // 2))
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


LONGEST_GROUP, MOST_GROUPS = 44, 8
"""Without `details`."""


def shorten_path(source: str | None, details: bool) -> str:
    """The file without its folders, and the line; with `details` all of it."""
    return source or "" if details else without_folders(source)


def list_groups(p: Profile, details: bool = False) -> list[Block]:
    """Returns the tables by line and by scope, if they add something. A note below the last one explains the
    numbers."""
    by_line = _group(p.ops, lambda op: shorten_path(op.source, details))
    by_scope = _group(p.ops, lambda op: op.named_scope)
    found: list[tuple[str, Table]] = []
    # The operations show the same if each has its own line, unless a roofline is known to compare the lines with.
    if any(by_line) and (len(by_line) < len(p.ops) or p.peaks is not None):
        found.append(("by line", _tabulate_groups(p, by_line, LINE_NAMES, NOT_YOURS, details)))
    if any(by_scope):
        found.append(("by scope", _tabulate_groups(p, by_scope, SCOPE_NAMES, "(none)", details)))
    noted = ((title, table if table is found[-1][1] else replace(table, note="")) for title, table in found)
    return [block for title, table in noted for block in (Heading(title), table)]


def _group(ops: Iterable[Op], name: Callable[[Op], str]) -> dict[str, list[Op]]:
    """Most time first."""
    return dict(sorted(group_by(ops, name).items(), key=lambda pair: -sum(op.self_s for op in pair[1])))


def _tabulate_groups(
    p: Profile, groups: dict[str, list[Op]], column: TableColumn, nameless: str, details: bool
) -> Table:
    rows = [
        (
            truncate(name, None if details else LONGEST_GROUP) or nameless,
            seconds(sum(op.self_s for op in ops)),
            percent(sum(op.share for op in ops)),
            _per_second([op.flops for op in ops], ops, "FLOP"),
            _per_second([op.bytes_accessed for op in ops], ops, "B"),
            *_beside_roofline(ops, p.peaks),
            count(len(ops)),
        )
        for name, ops in list(groups.items())[: None if details else MOST_GROUPS]
    ]
    has_rates = any(op.flops is not None for ops in groups.values() for op in ops)
    rates = "; exp, tanh and the like don't count as FLOP, and rows with a custom call have no rate" * has_rates
    operations = TableColumn("operations", is_optional=True)
    columns = (column, "self time", "share", "FLOP/s", "bytes/s", "of roofline", "bound by", operations)
    note = f"operations that ran in parallel on several threads count in full{rates}{_describe_roofline(p)}"
    return tabulate(columns, rows, note=note).without_empty_columns()


def _per_second(amounts: Sequence[float | None], ops: Sequence[Op], unit: str) -> str:
    """Over the time of the operations; empty where the work of one of them is not known."""
    known, time_s = [amount for amount in amounts if amount is not None], sum(op.self_s for op in ops)
    return rate(sum(known) / time_s, unit) if len(known) == len(ops) and time_s else ""


def _beside_roofline(ops: Sequence[Op], peaks: Peaks | None) -> tuple[str, str]:
    """(share of the roofline, what bounds it); empty where the work of one operation, or a rate, is not known.

    One operation runs behind the other, so the roofline of several is the sum of theirs.
    """
    roofs = [] if peaks is None else [roof for op in ops if (roof := op.roofline(peaks)) and roof.roof_s is not None]
    least_s, time_s = sum(roof.roof_s or 0.0 for roof in roofs), sum(op.self_s for op in ops)
    if len(roofs) < len(ops) or not least_s or not time_s:
        return "", ""
    of_memory_s = sum(roof.roof_s or 0.0 for roof in roofs if roof.is_memory_bound)
    # If the trace lacks the end of a call, the time is too short.
    at_most = "at most " if any(op.total_s is None for op in ops) else ""
    return at_most + percent(least_s / time_s), BOUND[of_memory_s >= least_s / 2]


def _describe_roofline(p: Profile) -> str:
    if p.peaks is not None:
        rates = describe_rates(p.peaks)
        return f"; of roofline: the longer of the times for bytes and FLOPs, by the self time, at {rates}"
    why = NOT_MEASURED if p.fingerprint else "the trace doesn't name its machine"
    return f"; share of the roofline: not measured, because {why}"


MOST_FUNCTIONS, LONGEST_PASS = 5, 24
MANY, MANY_SHARE = 20, 0.3
"""A line gets a remark if this many instructions, and this share of all instructions, come from it."""
LARGE_CONSTANTS = 1 << 20


def list_compile_time(p: Profile, details: bool = False) -> list[Block]:
    """Returns no blocks if the profile has no compile times. XLA's longest passes are below the table, because a window
    has no room for them in it."""
    if not p.compile_costs:
        return []
    most = None if details else MOST_FUNCTIONS
    listed, rest = p.compile_costs[:most], p.compile_costs[most:] if most else ()
    rows = [
        (
            truncate(one.name, None if details else LONGEST_GROUP),
            count(one.programs),
            *map(seconds, (one.trace_s, one.lower_s, one.compile_s)),
            shorten_path(one.source, details),
        )
        for one in listed
    ]
    more = f"and {plural(len(rest), 'more function')}: {seconds(sum(one.total_s for one in rest))}; " if rest else ""
    columns = (TableColumn("function", "names", 16, breaks_words=True), "programs", "trace", "lower", "compile")
    clock = "by JAX's own clock, from the import of jax on"
    place = WHERE if details else PLACE
    table = tabulate((*columns, place), rows, note=more + clock).without_empty_columns()
    reasons = [f"{one.name}: {why}" for one in listed if one.size for why in _explain(one.size, details)]
    spent = [[f"{truncate(name, LONGEST_PASS)} {seconds(time_s)}" for name, time_s in one.passes] for one in listed]
    longest = (f"longest passes of {one.name}: {', '.join(s)}" for one, s in zip(listed, spent, strict=True) if s)
    return [Heading("compile time"), table, *list_lines([*reasons, *longest])]


def _explain(found: ProgramSize, details: bool) -> Iterator[str]:
    """Explains which part of a program makes compiling long, and what would shorten it."""
    if found.repeated >= MANY and found.repeated >= MANY_SHARE * found.instructions:
        loop = f", unrolled by the loop at {shorten_path(found.loop, details)}; where its rounds are alike, "
        loop = f"{loop}jax.lax.scan compiles one" if found.loop else ""
        how = f", reached from {found.stacks} places and inlined at each" if found.stacks > 1 else loop
        of = f"{count(found.repeated)} of {plural(found.instructions, 'instruction')}"
        yield f"{of} are from {shorten_path(found.line, details)}{how}"
    if found.constant_bytes >= LARGE_CONSTANTS:
        yield f"{size(found.constant_bytes)} of constants are in the program; as arguments they would not be compiled"


MOST_DEPTH = 6
"""The timeline omits calls inside more than this many others."""
LONGEST_NAME = 40
MOST_MEMORY_LINES = 6
STYLES: tuple[Style, ...] = ("", "info")
"""Styles of calls, alternating with their depth."""


def document_with_charts(p: Profile) -> Document:
    """Shows everything that a terminal shows, in full, with the charts after its heading."""
    head, *rest = document(p, details=True).blocks
    drawn = [*([timeline] if (timeline := chart_timeline(p)) else []), *chart_trees(p.ops)]
    drawn += list(chart_memory(p.timeline)) if p.timeline else []
    return Document((head, *drawn, *([Heading("operations")] if drawn and p.ops else []), *rest))


# ---- what ran when ----------------------------------------------------------------------------------------------


def chart_timeline(p: Profile) -> Chart | None:
    """Draws a row for each depth of each thread, and for the idle time of each device. Returns None if no call is
    known."""
    rows: list[tuple[str, Bars]] = []
    for name, lanes in group_by(p.lanes, lambda lane: lane.device).items():
        gaps = next((device.gaps for device in p.devices if device.name == name), ())
        rows += [(f"{name} idle", _draw_gaps(gaps))] if gaps else []
        rows += [row for lane in lanes for row in _draw_calls(lane)]
    if not rows:
        return None
    marks = [replace(bars, places=(float(i),) * len(bars.lows)) for i, (_, bars) in enumerate(rows)]
    n, shown = sum(lane.n_calls for lane in p.lanes), sum(len(mark.lows) for mark in marks if mark.label == "calls")
    left = f"; the longest {shown} of {plural(n, 'call')}" if shown < n else ""
    note = f"orange: the device was idle (the longest times){left}"
    time = Axis("since the recording began", "seconds")
    names = name_places([name for name, _ in rows])
    return Chart(time, names, tuple(marks), "timeline", note=note, is_broad=True)


def _draw_gaps(gaps: Sequence[Gap]) -> Bars:
    starts, ends = tuple(gap.start_s for gap in gaps), tuple(gap.start_s + gap.length_s for gap in gaps)
    texts = tuple(f"idle {seconds(gap.length_s)}, between {gap.before} and {gap.after}" for gap in gaps)
    return Bars((), starts, ends, "x", label="idle", style="warning", texts=texts)


def _draw_calls(lane: Lane) -> Iterator[tuple[str, Bars]]:
    """Yields a row for each depth. Only the first row of a thread has its name; the others are its contents."""
    by_depth = group_by(range(len(lane.depths)), lane.depths.__getitem__)
    for depth, chosen in sorted(by_depth.items())[:MOST_DEPTH]:
        name = f"… inside {depth}" if depth else truncate(f"{lane.device} {lane.thread}", LONGEST_NAME)
        starts, ends = (tuple(times[i] for i in chosen) for times in (lane.starts_s, lane.ends_s))
        texts = tuple(lane.names[i] for i in chosen)
        yield name, Bars((), starts, ends, "x", label="calls", style=STYLES[depth % len(STYLES)], texts=texts)


# ---- where the time goes ----------------------------------------------------------------------------------------


def chart_trees(ops: Sequence[Op]) -> Iterator[Chart]:
    """Self time by program and named scope, and by file and line, where the trace says these."""
    for title, path_of in (("by scope", _path_of_scope), ("by your line", _path_of_line)):
        details = (" · ".join(filter(None, (plural(op.calls, "call"), op.source, op.shape))) for op in ops)
        leaves = [([*path_of(op), op.name], op.self_s, detail) for op, detail in zip(ops, details, strict=True)]
        if len(leaves) > 1 and any(len(path) > 2 for path, _, _ in leaves):
            yield Chart(Axis(), Axis(), (Tree(grow(leaves)),), f"self time {title}")


def _path_of_scope(op: Op) -> list[str]:
    # The first part is the program, and the last one is JAX's name for the operation.
    parts = [part for part in (op.scope or "").split("/") if part]
    return [op.module or "(unknown program)", *parts[1:]]


def _path_of_line(op: Op) -> list[str]:
    file = (op.source or "").rpartition(":")[0]
    return [file, without_folders(op.source)] if file else [NOT_YOURS]


# ---- memory -----------------------------------------------------------------------------------------------------


def chart_memory(t: Timeline) -> Iterator[Chart]:
    """Readings over time, with a gap where one was not made. Live arrays by the line that made them, at the readings
    that asked for lines."""
    if len(t.times_s) > 1:
        named = [(" ".join(filter(None, (MEMORY_KINDS[one.kind], one.device))), one.sizes_bytes) for one in t.columns]
        yield _over_time(t, named, "memory over time", t.incomplete)
    if t.lines:
        named = [(without_folders(line.source), line.sizes_bytes) for line in t.lines[:MOST_MEMORY_LINES]]
        is_all = len(named) == len(t.lines)
        note = "" if is_all else f"the {len(named)} that held most at some time, of {len(t.lines)}"
        yield _over_time(t, named, "live arrays by the line that made them", note)


def _over_time(t: Timeline, named: Sequence[tuple[str, Sequence[int | None]]], title: str, note: str) -> Chart:
    known = [
        ([(at, float(size)) for at, size in zip(t.times_s, sizes, strict=True) if size is not None], label)
        for label, sizes in named
    ]
    lines = (
        Line(tuple(at for at, _ in places), tuple(size for _, size in places), label)
        for places, label in known
        if places
    )
    axis = Axis("since the recording began", "seconds")
    return Chart(axis, Axis("", "bytes"), tuple(lines), title, has_series=True, note=note)


# The steps of a training loop: a sentence, then what a step is made of, its first one and its slowest.
#
# A moment in which a device works is the device's; the other parts are of idle devices, by what these waited for.
# Where a trace shows no device, its work is not measured.

KINDS: dict[PartKind, str] = {
    "device": "device at work",
    "input": "waiting for input",
    "python": "Python",
    "waiting": "off the processor",
    "compile": "tracing and compiling",
    "transfer": "transfers",
    "dispatch": "dispatch by JAX",
    "unknown": "not measured",
    "unseen": "Python, not sampled",
}
OF_IT, MEANWHILE = "· of it", "· Python meanwhile"
"""Names of the rows below a part, which become cards in a narrow window."""
LEAST_SHARE = 0.01
"""Lines with less of a step are in the JSON only."""
SECOND = 0.25
"""The sentence names a second part only if it takes at least this share of a step. It omits that a device works for the
rest."""
FEW_SAMPLES = 30
"""With fewer samples than this, the picture is rough, and the table notes it."""
MOST_PROGRAMS = 4
PARTS_OF_A_STEP = (
    TableColumn("part of a step", "words"),
    TableColumn("time"),
    TableColumn("share"),
    WHERE,
)


def describe_steps(split: StepSplit, cost: RecordingCost | None = None) -> list[Block]:
    """Returns the blocks at the top of a profile, below the sentence that is its title."""
    costs = [] if cost is None else [Paragraph(describe_recording_cost(cost, "a step"))]
    blocks: list[Block] = [Paragraph(_describe_length(split), "faint"), *costs, tabulate_parts(split)]
    if rows := tuple(_list_steps(split)):
        blocks += [Heading("steps"), Facts((Section("", rows),), "words")]
    return blocks


def describe_split(split: StepSplit) -> str:
    """58 % of a step is data loading at loader.py:31; the device waits."""
    if not split.parts:
        return "the steps are not known"
    part, others = split.parts[0], split.parts[1:]
    of = "a step" if split.mark != "none" else "the recorded time"
    others = [one for one in others if one.kind != "device" and one.share >= SECOND]
    also = [f"; {percent(one.share)} is {_describe_part(one, split)}" for one in others[:1]]
    return f"{percent(part.share)} of {of} is {_describe_part(part, split)}{''.join(also)}"


_PARTS: dict[PartKind, str] = {
    "device": "the device at work{hottest}",
    "input": "data loading{at}; the device waits",
    "python": "Python{at}{function}; the device waits",
    "waiting": "spent off the processor{at}{function}; the device waits",
    "compile": "tracing and compiling{at}{often}; the device waits",
    "transfer": "moving data{at}; the device waits",
    "dispatch": "JAX's own dispatch{programs}{at}; the device waits",
    "unknown": "spent{at}{function}; the device's work was not measured, because a trace holds only calls that begin "
    "and end in it",
    "unseen": "Python in pieces too short to be sampled; the device waits",
}


def _describe_part(part: StepPart, split: StepSplit) -> str:
    line = part.lines[0] if part.lines else None
    per_step = sum(program.per_step for program in split.programs)
    hottest = (
        f"; {percent(split.hottest_share)} of its work is {without_folders(split.hottest)}" if split.hottest else ""
    )
    often = f", in {split.compiling_steps} of {plural(len(split.lengths_s), 'step')}" if split.mark != "none" else ""
    many = "one program" if round(per_step, 2) == 1 else f"{per_step:.3g} programs"
    return _PARTS[part.kind].format(
        at=f" at {without_folders(line.source)}" if line else "",
        function=_in(line),
        hottest=hottest,
        often=often,
        programs=f" of {many} a step" if split.mark != "none" and per_step else "",
    )


def _in(line: PartLine | None) -> str:
    return f" ({line.function})" if line and not line.function.startswith("<") else ""


def _describe_length(split: StepSplit) -> str:
    if split.mark == "none":
        recorded = f"the {seconds(split.mean_s)} that were recorded"
        return f"no steps found: no compiled program that kept the devices busy ran three times in {recorded}"
    lengths = split.lengths_s
    spread = f", {seconds(min(lengths))} to {seconds(max(lengths))}" if len(lengths) > 1 else ""
    what = f"a call of {split.name}" if split.mark == "program" else f"marked as {split.name!r} by the program"
    where = f" at {without_folders(split.called_at)}" if split.called_at else ""
    return f"a step, {what}{where}, takes {seconds(median(lengths))} (median of {len(lengths)}{spread})"


def tabulate_parts(split: StepSplit) -> Table:
    """A line for each part, and below it one for each line of the user's beyond the first."""
    found: list[tuple[str, float, float, PartLine | None]] = []
    for part in split.parts:
        shown = [line for line in part.lines if line.share >= LEAST_SHARE]
        # The Python line during device work is not the origin of that work.
        is_beside = len(shown) == 1 and part.kind != "device"
        name = MEANWHILE if part.kind == "device" else OF_IT
        found.append((KINDS[part.kind], part.mean_s, part.share, shown[0] if is_beside else None))
        found += [(name, line.share * split.mean_s, line.share, line) for line in ([] if is_beside else shown)]
    rows = [
        (*map(TableCell, (name, seconds(time_s), percent(share))), _describe_line(line))
        for name, time_s, share, line in found
    ]
    return Table(PARTS_OF_A_STEP, tuple(rows), _describe_samples(split))


def _describe_line(line: PartLine | None) -> TableCell:
    if line is None:
        return TableCell("")
    inside = f" in {without_folders(line.within)}" if line.within else ""
    return TableCell(f"{without_folders(line.source)}{_in(line)}{inside}", hint=line.source)


def _describe_samples(split: StepSplit) -> str:
    if split.sampler_share is None:
        return "the lines of Python are not known: this trace has no samples of the stack"
    few = ", so few that the shares of lines are approximate" if split.samples < FEW_SAMPLES else ""
    cost = f"sampling took {percent(split.sampler_share)} of the time"
    mean = f"parts of the mean step, {seconds(split.mean_s)}; " if split.mark != "none" else ""
    return f"{mean}each moment counts once; lines by {plural(split.samples, 'sample')}{few}; {cost}"


def _list_steps(split: StepSplit) -> Iterator[TextRow]:
    """Describes single steps, and what else runs in a step."""
    if split.first is not None:
        yield TextRow("first step", seconds(split.first.length_s), _describe_surplus(split.first))
    if split.warm_up > 1:
        when = "at the beginning, with compilations"
        yield TextRow("left out", plural(split.warm_up, "step"), when)
    if split.first_compile_s:
        yield TextRow("before", seconds(split.first_compile_s), "of tracing and compiling, ahead of the recording")
    if one := split.slowest:
        yield TextRow("slowest step", seconds(one.length_s), f"number {one.index}, {_describe_surplus(one)}")
    steps = split.warm_up + len(split.lengths_s)
    others = [_describe_calls(each, steps) for each in split.programs if each.name != split.name or each.per_step > 1.5]
    if others:
        yield TextRow("also in a step", ", ".join(list_some(others, MOST_PROGRAMS)))


def _describe_surplus(one: OneStep) -> str:
    if one.more is None or one.more_s <= 0:
        return ""
    name = "Python" if one.more == "unseen" else KINDS[one.more]
    where = f" at {without_folders(one.where)}" if one.where else ""
    also = [f"{count(other.per_step)} × {other.name}" for other in one.others[:MOST_PROGRAMS]]
    return f"{seconds(one.more_s)} more than usual of: {name}{where}{'; only in it: ' * bool(also)}{', '.join(also)}"


def _describe_calls(one: ProgramsPerStep, steps: int) -> str:
    """4 × jit_add; jit_eval_step (16 in 204 steps)"""
    if one.per_step >= 1:
        return f"{count(round(one.per_step, 2))} × {one.name}"
    return f"{one.name} ({round(one.per_step * steps)} in {plural(steps, 'step')})"


LEAST_FACTOR = 1.05
"""Below it recorded and unrecorded are the same, as far as neighbours on the machine let it be known."""


def describe_recording_cost(cost: RecordingCost, what: str) -> str:
    """Recorded, a step takes 2.7 times as long as the 1.42 ms without, for its 4,900 events: ...

    Args:
        what: a step, or a call.
    """
    events = f"{count(round(cost.events))} events"
    if cost.unrecorded_s is None or cost.factor is None:
        return f"the cost of recording the {events} of {what} was not measured, because {cost.why}"
    unrecorded = seconds(cost.unrecorded_s)
    if cost.factor < LEAST_FACTOR:
        return f"without recording, {what} takes {unrecorded}: recording adds little"
    times = f"{cost.factor:.2g} times as long"
    return (
        f"without recording, {what} takes {unrecorded}: recording its {events} makes it {times} "
        f"({seconds(cost.recorded_s)}), so the shares of short operations are too large"
    )


TOP_CHANGES, MOST_LINES = 20, 10
WIDTH, WIDE = 40, 60


def document_of_change(change: ProfileChange) -> Document:
    return Document((*_list_changes(change), *list_remarks(change.remarks)))


def _list_changes(change: ProfileChange) -> Iterator[Block]:
    yield Heading(f"{change.before} → {change.after}", 1)
    if change.steps_s is not None:
        before, after = map(seconds, change.steps_s)
        yield Paragraph(f"a step takes {after}, before {before} (medians): {_more(*change.steps_s)}")
    if change.lines:
        own = [line for line in change.lines if line.source] or change.lines
        yield Paragraph(f"the line that differs most: {_describe_change(own[0])} a {change.per}")
    yield from _tables(change)


def _describe_change(line: LineChange) -> str:
    """+18.0 ms at model.py:41, dot is f32[64,64] now, was bf16[64,64]"""
    op, is_known = line.largest, line.before_s is not None and line.after_s is not None
    where = f"at {without_folders(line.source)}" if line.source else f"of {op.name}"
    program = f" in {line.module}" if line.module else ""
    more = _more(line.before_s or 0.0, line.after_s or 0.0) if is_known else "an unknown time"
    dtype = f", {op.category or op.name} is {op.shape} now, was {op.shape_before}" if op.shape_before else ""
    return f"{more} {where}{program}{dtype}"


def _tables(change: ProfileChange) -> Iterator[Block]:
    if change.parts:
        rows = [
            (KINDS[part.kind], seconds(part.before_s), seconds(part.after_s), _more(part.before_s, part.after_s))
            for part in change.parts
        ]
        yield tabulate((TableColumn("part of the mean step", "words"), "before", "after", "more"), rows)
    per = "run of its program" if change.per == "run" else change.per
    if any(line.source for line in change.lines) and len(change.lines) > 1:
        where = " in all runs" if any(line.module for line in change.lines) else ""
        yield Heading("by line", below=(f"self time per {per}, largest change{where} first",))
        rows = [
            (
                f"{line.module}: {without_folders(line.source) or NOT_YOURS}".removeprefix(": "),
                _time(line.before_s),
                _time(line.after_s),
                "" if line.before_s is None or line.after_s is None else _more(line.before_s, line.after_s),
            )
            for line in change.lines[:MOST_LINES]
        ]
        yield tabulate((LINE_NAMES, "before", "after", "more"), rows)
    if change.ops:
        yield Heading("by operation", below=(f"self time per {per}, largest change first",))
        # In either direction.
        largest = sorted(change.ops, key=lambda op: -abs(op.more_s))[:TOP_CHANGES]
        operation = TableColumn("operation", "names", 16, breaks_words=True)
        yield tabulate((operation, "before", "after", "more", "calls", PLACE), map(_change_line, largest))


def _change_line(op: OpChange) -> tuple[str, ...]:
    before = _time(op.before_s) if op.calls_before else "not there"
    after = _time(op.after_s) if op.calls_after else "not there"
    is_known = op.calls_before and op.calls_after and op.before_s is not None and op.after_s is not None
    more = _more(op.before_s or 0.0, op.after_s or 0.0) if is_known else ""
    calls = f"{count(op.calls_before)} → {count(op.calls_after)}"
    shape = f"{op.shape_before} → {op.shape}" if op.shape_before else op.shape or ""
    scope = (op.scope or "").partition("/")[2] or op.category
    where = " ".join(filter(None, (without_folders(op.source), shape, scope)))
    return truncate(op.name, WIDTH), before, after, more, calls, truncate(where, WIDE)


def _more(before_s: float, after_s: float) -> str:
    return f"{'+' if after_s >= before_s else '-'}{seconds(abs(after_s - before_s))}"


def _time(value: float | None) -> str:
    return "not known" if value is None else seconds(value)
