"""A profile in tables: the hottest operations, idle devices, the compiler, what stayed in memory, and the files.

For a profile without operations, the remarks explain why it has no operations, instead of an empty table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from benchax.reporting import steps
from benchax.reporting.chart import Axis, AxisTick, Bars, Chart, Line, Style, Tree, grow
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
    tabulate,
)
from benchax.reporting.steps import KINDS, describe_recording_cost
from benchax.reporting.tables import BOUND, LINE_NAMES, NOT_MEASURED, SCOPE_NAMES, WHERE, describe_rates, truncate
from benchax.results.profile import (
    Column,
    CompileCost,
    Device,
    Kind,
    Lane,
    LineChange,
    Op,
    OpChange,
    Profile,
    ProfileChange,
    ProgramSize,
    Timeline,
)
from benchax.results.roofline import Peaks
from benchax.source_files import NOT_YOURS, without_folders
from benchax.units import count, percent, plural, rate, seconds, size

COLUMNS = (
    TableColumn("operation", "names", 20, is_cut=True),
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
MEMORY_KINDS: dict[Kind, str] = {
    "live_arrays": "live arrays",
    "in_use": "in use",
    "peak_in_use": "peak in use",
    "resident": "resident",
}


def document(p: Profile, details: bool = False) -> Document:
    """With `details` every operation, uncut, with its line of HLO."""
    blocks: list[Block] = [Heading(f"{p.title or 'profile'}: {answer(p)}", 1, (_where(p),))]
    if p.split is not None:
        blocks += steps.blocks(p.split, p.recording_cost)
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
        return steps.sentence(p.split)
    if not p.ops:
        return "no operation was recorded"
    hottest = p.ops[0]
    at = f" at {without_folders(hottest.source)}" if hottest.source else ""
    return f"{percent(hottest.share)} of its work is {truncate(hottest.name, NAME)}{at}"


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
    where = " ".join(part for part in (shorten_path(op.source, details), _scope(op, details)) if part)
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
        return [TextRow("communication", share, "what ran at the same time is not known")]
    return [TextRow("communication", share, f"{seconds(device.exposed_s)} of it while nothing else ran")]


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
        f"{MEMORY_KINDS[column.kind]} {column.device}".strip(),
        draw_memory(t.times_s, column.sizes_bytes),
        spread + since,
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
        yield TextRow(MEMORY_KINDS["in_use"], "not available on this backend", why)


def _readings(t: Timeline) -> TextRow:
    if t.interval_s is None or t.longest_gap_s is None or t.share is None:
        return TextRow("readings", str(len(t.times_s)))
    apart = f"{seconds(t.interval_s)} apart, at most {seconds(t.longest_gap_s)}"
    return TextRow("readings", f"{len(t.times_s)}, {apart}", f"they took {percent(t.share)} of the time")


def _unseen(t: Timeline) -> TextRow:
    where = "resident" if t.without("in_use") else "in use"
    return TextRow("not seen", "peaks between two readings", f"temporaries of programs are in {where!r} only")


LONGEST_GROUP, MOST_GROUPS = 44, 8
"""Without `details`."""


def shorten_path(source: str | None, details: bool) -> str:
    """The file without its folders, and the line; with `details` all of it."""
    return source or "" if details else without_folders(source)


def list_groups(p: Profile, details: bool = False) -> list[Block]:
    """Returns the tables by line and by scope, if they add something. A note below the last one explains the
    numbers."""
    named = (("by line", by_line(p, details)), ("by scope", by_scope(p, details)))
    shown = [(title, table) for title, table in named if table is not None]
    last = len(shown) - 1
    noted = [(title, table if at == last else replace(table, note="")) for at, (title, table) in enumerate(shown)]
    return [block for title, table in noted for block in (Heading(title), table)]


def by_line(p: Profile, details: bool = False) -> Table | None:
    """Lists device time by the user's line. Returns None if the operations show the same, one line each, and no
    roofline is known to compare the lines with."""
    groups = _group(p.ops, lambda op: shorten_path(op.source, details))
    if not any(groups) or (len(groups) == len(p.ops) and p.peaks is None):
        return None
    return _tabulate_groups(p, groups, LINE_NAMES, NOT_YOURS, details)


def by_scope(p: Profile, details: bool = False) -> Table | None:
    """Lists device time by named scope. Returns None if no operation has a scope."""
    groups = _group(p.ops, lambda op: op.named_scope)
    if not any(groups):
        return None
    return _tabulate_groups(p, groups, SCOPE_NAMES, "(none)", details)


def _group(ops: Iterable[Op], name: Callable[[Op], str]) -> dict[str, list[Op]]:
    """Most time first."""
    found: dict[str, list[Op]] = {}
    for op in ops:
        found.setdefault(name(op), []).append(op)
    return dict(sorted(found.items(), key=lambda pair: -sum(op.self_s for op in pair[1])))


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
    rates = ""
    if any(op.flops is not None for ops in groups.values() for op in ops):
        rates = "; exp, tanh and the like count no FLOP, and a row with a custom call has no rate"
    columns = (column, "self time", "share", "FLOP/s", "bytes/s", "of roofline", "bound by", "operations")
    note = f"operations that ran at once, on several threads, count in full{rates}{_describe_roofline(p)}"
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
    # Where the end of a call is not in the trace, the time is too short.
    at_most = "at most " if any(op.total_s is None for op in ops) else ""
    return at_most + percent(least_s / time_s), BOUND[of_memory_s >= least_s / 2]


def _describe_roofline(p: Profile) -> str:
    if p.peaks is None:
        why = NOT_MEASURED if p.fingerprint else "the trace does not say on which machine it was recorded"
        return f"; share of the roofline: not measured, because {why}"
    return f"; of roofline: the longer of bytes and FLOPs by the self time, at {describe_rates(p.peaks)}"


MOST_FUNCTIONS, LONGEST_PASS = 5, 24
MANY, MANY_SHARE = 20, 0.3
"""A line gets a remark if this many instructions, and this share of all instructions, come from it."""
LARGE_CONSTANTS = 1 << 20


def list_compile_time(p: Profile, details: bool = False) -> list[Block]:
    """Returns no blocks if the profile has no compile times."""
    if not p.compile_costs:
        return []
    listed = p.compile_costs if details else p.compile_costs[:MOST_FUNCTIONS]
    passes = [f"longest passes of {one.name}: {_list_passes(one)}" for one in listed if one.passes]
    reasons = [f"{one.name}: {why}" for one in listed if one.size for why in _explain(one.size, details)]
    return [Heading("compile time"), tabulate_costs(p, listed, details), *list_lines([*reasons, *passes])]


def _list_passes(cost: CompileCost) -> str:
    return ", ".join(f"{truncate(name, LONGEST_PASS)} {seconds(time_s)}" for name, time_s in cost.passes)


def tabulate_costs(p: Profile, listed: tuple[CompileCost, ...], details: bool) -> Table:
    """Lists functions by trace, lower and compile. XLA's longest passes follow below, because a window has no room for
    them."""
    rows = [
        (
            truncate(one.name, None if details else LONGEST_GROUP),
            count(one.programs),
            seconds(one.trace_s),
            seconds(one.lower_s),
            seconds(one.compile_s),
            shorten_path(one.source, details),
        )
        for one in listed
    ]
    rest = p.compile_costs[len(listed) :]
    more = f"and {plural(len(rest), 'more function')}: {seconds(sum(one.total_s for one in rest))}; " if rest else ""
    columns = (TableColumn("function", "names", 16, breaks_words=True), "programs", "trace", "lower", "compile", WHERE)
    return tabulate(columns, rows, note=more + "by JAX's own clock, from the import of jax on").without_empty_columns()


def _explain(found: ProgramSize, details: bool) -> Iterator[str]:
    """Explains which part of a program makes compiling long, and what would shorten it."""
    if found.repeated >= MANY and found.repeated >= MANY_SHARE * found.instructions:
        line = shorten_path(found.line, details)
        many = f"{count(found.repeated)} of {plural(found.instructions, 'instruction')} are from {line}"
        if found.stacks > 1:
            yield f"{many}, reached from {found.stacks} places and inlined at each"
        elif found.loop:
            loop = shorten_path(found.loop, details)
            yield f"{many}, unrolled by the loop at {loop}; where its rounds are alike, jax.lax.scan compiles one"
        else:
            yield f"{many}"
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
    ways: tuple[tuple[str, Callable[[Op], list[str]]], ...] = (
        ("by scope", _path_of_scope),
        ("by your line", _path_of_line),
    )
    for title, path_of in ways:
        if any(len(path_of(op)) > 1 for op in ops):
            roots = grow(([*path_of(op), op.name], op.self_s, _describe_op(op)) for op in ops)
            yield Chart(Axis(), Axis(), (Tree(roots),), f"self time {title}")


def _describe_op(op: Op) -> str:
    return " · ".join(filter(None, (plural(op.calls, "call"), op.source, op.shape)))


def _path_of_scope(op: Op) -> list[str]:
    # The first part is the program, the last one JAX's name of the operation.
    parts = [part for part in (op.scope or "").split("/") if part]
    return [op.module or "(unknown program)", *parts[1:]]


def _path_of_line(op: Op) -> list[str]:
    file = (op.source or "").rpartition(":")[0]
    return [file, without_folders(op.source)] if file else [NOT_YOURS]


# ---- memory -----------------------------------------------------------------------------------------------------


def chart_memory(t: Timeline) -> Chart:
    """Readings over time; a gap where one was not made."""
    named = [(" ".join(filter(None, (MEMORY_KINDS[one.kind], one.device))), one.sizes_bytes) for one in t.columns]
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


TOP_CHANGES, MOST_LINES = 20, 10
WIDTH, WIDE = 40, 60


def document_of_change(change: ProfileChange) -> Document:
    return Document((*_top(change), *_tables(change), *list_remarks(change.remarks)))


def _top(change: ProfileChange) -> Iterator[Block]:
    yield Heading(f"{change.before} → {change.after}", 1)
    if change.steps_s is not None:
        before_s, after_s = change.steps_s
        yield Paragraph(
            f"a step takes {seconds(after_s)}, before {seconds(before_s)} (medians): {_more(*change.steps_s)}"
        )
    if change.lines:
        own = [line for line in change.lines if line.source] or change.lines
        yield Paragraph(f"the line that differs most: {_describe_change(own[0])} a {change.per}")


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
        part = TableColumn("part of the mean step", "words")
        yield tabulate((part, "before", "after", "more"), rows)
    if any(line.source for line in change.lines) and len(change.lines) > 1:
        order = (
            "largest change in all runs first" if any(line.module for line in change.lines) else "largest change first"
        )
        yield Heading("by line", below=(f"self time per {_per(change)}, {order}",))
        yield changes_by_line(change)
    if change.ops:
        yield Heading("by operation", below=(f"self time per {_per(change)}, largest change first",))
        yield change_grid(change)


def _per(change: ProfileChange) -> str:
    return "run of its program" if change.per == "run" else change.per


def changes_by_line(change: ProfileChange) -> Table:
    rows = [
        (
            _name(line),
            _time(line.before_s),
            _time(line.after_s),
            "" if line.before_s is None or line.after_s is None else _more(line.before_s, line.after_s),
        )
        for line in change.lines[:MOST_LINES]
    ]
    return tabulate((LINE_NAMES, "before", "after", "more"), rows)


def _name(line: LineChange) -> str:
    return f"{line.module}: {without_folders(line.source) or NOT_YOURS}".removeprefix(": ")


def change_grid(change: ProfileChange) -> Table:
    """One line for each origin, the largest change first, in either direction."""
    largest = sorted(change.ops, key=lambda op: -abs(op.more_s))[:TOP_CHANGES]
    operation = TableColumn("operation", "names", 16, breaks_words=True)
    return tabulate((operation, "before", "after", "more", "calls", WHERE), map(_change_line, largest))


def _change_line(op: OpChange) -> tuple[str, ...]:
    before = "not there" if not op.calls_before else _time(op.before_s)
    after = "not there" if not op.calls_after else _time(op.after_s)
    is_known = op.calls_before and op.calls_after and op.before_s is not None and op.after_s is not None
    more = _more(op.before_s or 0.0, op.after_s or 0.0) if is_known else ""
    calls = f"{count(op.calls_before)} → {count(op.calls_after)}"
    line = without_folders(op.source)
    scope = (op.scope or "").partition("/")[2] or op.category
    shape = f"{op.shape_before} → {op.shape}" if op.shape_before else op.shape or ""
    where = " ".join(part for part in (line, shape, scope) if part)
    return truncate(op.name, WIDTH), before, after, more, calls, truncate(where, WIDE)


def _more(before_s: float, after_s: float) -> str:
    return f"{'+' if after_s >= before_s else '-'}{seconds(abs(after_s - before_s))}"


def _time(value: float | None) -> str:
    return "not known" if value is None else seconds(value)
