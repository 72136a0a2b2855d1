"""The compiled form of a call, as a document: an overview, or one of its parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby
from pathlib import Path

from benchax.grouping import group_by
from benchax.printable import cap, list_some
from benchax.reporting.document import (
    Axis,
    Block,
    Chart,
    Code,
    Document,
    Facts,
    Heading,
    Outline,
    OutlineColumn,
    OutlineEntry,
    Paragraph,
    Quantity,
    Section,
    Sparkline,
    Table,
    TableColumn,
    TextRow,
    Tree,
    grow,
    list_lines,
    list_remarks,
    tabulate,
)
from benchax.reporting.measurement import chart_memory
from benchax.reporting.tables import BOUND, LINE, LINE_NAMES, SCOPE_NAMES, WHERE
from benchax.results.inspection import (
    Constant,
    Difference,
    HloOperation,
    HloOperations,
    Inspection,
    LineWork,
    NumberChange,
    PeakMemory,
    Roofline,
    Stage,
    highest_of_stretches,
)
from benchax.source_files import NOT_YOURS, below_packages
from benchax.units import change as describe_ratio
from benchax.units import count, percent, plural, rate, seconds, seconds_range, size

# Shows the work of a program by line and by named scope, and its time at the rates of this machine.
#
# The time is estimated from the program's text: the larger of the times for bytes and for FLOPs. A kernel reads,
# computes, and writes at once. So its FLOPs count at the same line as its bytes, whichever lines they come from.


def lines(found: Inspection, roof: Roofline | None = None) -> Table | None:
    """Lists the work by line, and each line's share of the memory at its peak. A share of operations appears only if
    their sum is complete."""
    values = group_by(found.peak.values if found.peak else (), lambda value: near(value.source or NOT_YOURS))
    held = {line: sum(value.size_bytes for value in made) for line, made in values.items()}
    return _by(found, lambda one: one.source or NOT_YOURS, LINE_NAMES, roof, held)


def scopes(found: Inspection, roof: Roofline | None = None) -> Table | None:
    """Returns None if no part of the program is in a named scope."""
    if not any(one.scope for one in found.lines or ()):
        return None
    return _by(found, lambda one: one.scope or "(none)", SCOPE_NAMES, roof)


def _by(
    found: Inspection,
    name: Callable[[LineWork], str],
    column: TableColumn,
    roof: Roofline | None,
    held: Mapping[str, int] | None = None,
) -> Table | None:
    sizes = held or {}
    by_place = {place: list[LineWork]() for place in sizes} | group_by(found.lines or (), lambda one: near(name(one)))
    whole = found.counts.flops if found.counts else None
    sums = [
        (place, sum(one.flops for one in work), sum(one.bytes_accessed for one in work), work)
        for place, work in by_place.items()
    ]
    listed: list[Line] = [
        (
            place,
            count(flops, "FLOP"),
            percent(flops / whole) if whole else "",
            count(sum(one.transcendentals for one in work)),
            size(moved_bytes),
            *_beside_roofline(moved_bytes, [one.kernel_flops for one in work], roof),
            size(sizes[place]) if place in sizes else "",
        )
        for place, flops, moved_bytes, work in sorted(sums, key=lambda one: (-one[1], -one[2]))
    ]
    columns = (column, "operations", "share", "transcendentals", "bytes", "least time", "bound by", "at the peak")
    return build_table(columns, listed, _describe(roof) if listed else "")


def _beside_roofline(
    moved_bytes: float, kernel_flops: Sequence[float | None], roof: Roofline | None
) -> tuple[str, str]:
    """Returns (the longer of bytes and FLOPs at the machine's rates, which of the two it is). Both are empty if one is
    not known, or if all of the work is fused into kernels of other lines."""
    known = [flops for flops in kernel_flops if flops is not None]
    if roof is None or not roof.bytes_per_s or not roof.flops_per_s or len(known) < len(kernel_flops):
        return "", ""
    bytes_s, flops_s = moved_bytes / roof.bytes_per_s, sum(known) / roof.flops_per_s
    least_s = max(bytes_s, flops_s)
    return (seconds(least_s), BOUND[bytes_s >= flops_s]) if least_s else ("", "")


def _describe(roof: Roofline | None) -> str:
    if roof is None or not roof.bytes_per_s or not roof.flops_per_s:
        return ""  # the roofline of the whole program says why
    rates = f"{rate(roof.bytes_per_s, 'B')} and {rate(roof.flops_per_s, 'FLOP')}"
    counted = ", for the counted part" if roof.is_at_least else ""
    return f"least time: estimated from the bytes and FLOPs of the kernels, whichever takes longer, at {rates}{counted}"


TEXTS: tuple[Stage, ...] = ("jaxpr", "stablehlo", "hlo")
PARTS = ("overview", *TEXTS, "cost", "memory", "constants", "donation", "collectives")
"""The parts that this module can draw. A graph is a file (`program/graph`)."""


def document(
    found: Inspection, show: Sequence[str] = ("overview",), *, full: bool = False, roof: Roofline | None = None
) -> Document:
    """Draws the requested parts, in that order.

    Args:
        show: a selection of `PARTS`. A single text has no heading, so that it can go into a file.
        full: nothing is folded.
        roof: the roofline to compare the work with; None omits it.
    """
    if len(show) == 1 and show[0] in TEXTS and (text := _text(found, show[0])) is not None:
        return Document((program_text(show[0], text, full),))
    title, where = heading(found)
    blocks: list[Block] = [Heading(f"{title}: {answer(found)}", 1, (where,))]
    for part in show:
        blocks += _show_text(found, part, full) if part in TEXTS else _PARTS[part](found, full, roof)
    return Document((*blocks, *(list_remarks(found.remarks) if "overview" in show else ())))


def document_with_texts(found: Inspection) -> Document:
    """For a page, which folds the texts."""
    return document(found, ("overview", *(stage for stage in TEXTS if _text(found, stage) is not None)))


def _show_text(found: Inspection, stage: Stage, full: bool) -> list[Block]:
    if (text := _text(found, stage)) is None:
        return [Heading(stage), _nothing(found, stage)]
    return [program_text(stage, text, full, title=stage)]


def _overview(found: Inspection, full: bool, roof: Roofline | None) -> list[Block]:
    sections = (Facts((section,)) for section in overview(found, roof))
    return [*sections, *_table("primitives", primitives(found), full=full)]


def _cost(found: Inspection, full: bool, roof: Roofline | None) -> list[Block]:
    tables = {"by line": lines(found, roof), "by scope": scopes(found, roof), "loops": loops(found)}
    listed = (block for title, table in tables.items() for block in _table(title, table, full=full))
    return [*(Facts((section,)) for section in cost(found, roof)), *listed]


def _memory(found: Inspection, full: bool, _: object) -> list[Block]:
    blocks: list[Block] = [Facts((Section("memory", tuple(_memory_rows(found))),))]
    if found.buffers is None:
        return [*blocks, Heading("buffers"), _nothing(found, "buffers"), *show_peak(found, full)]
    rows: list[Line] = [(b.what, size(b.size_bytes), b.kind, b.op_name, near(b.source)) for b in found.buffers.buffers]
    missing = ", ".join(f"{size(n)} of kind {kind}" for kind, n in found.buffers.unattributed)
    is_partial = found.buffers.method == "program text"
    notes = (
        "arguments, outputs and constants only: the plan itself could not be read" if is_partial else "",
        f"not attributed to any buffer: {missing}" if missing else "",
    )
    blocks += _table("buffers", build_table((WHAT, "size", "kind", WHERE, LINE), rows), full=full)
    return [*blocks, *list_lines(filter(None, notes), "faint"), *show_peak(found, full)]


def _constants(found: Inspection, full: bool, _: object) -> list[Block]:
    """The captured ones, and those baked in."""
    blocks: list[Block] = []
    for title, what in (("captured by the function", "captured"), ("stored in the program", "baked_in")):
        listed: Sequence[Constant] | None = getattr(found.constants, what, None)
        if not listed:
            blocks += [Heading(title), _nothing(found, f"constants.{what}") if listed is None else Paragraph("none")]
            continue
        table = build_table((WHAT, "size", WHERE), [(c.spec, size(c.size_bytes), near(c.where)) for c in listed])
        blocks += _table(f"{title}: {size(sum(c.size_bytes for c in listed))}", table, full=full)
    return blocks


def _donation(found: Inspection, full: bool, _: object) -> list[Block]:
    if found.donation is None:
        return [Heading("donation"), _nothing(found, "donation")]
    aliased, each = found.donation.aliased_bytes, found.donation.arguments
    if not each:
        return [Heading("donation"), Paragraph("no argument is donated")]
    arrays = f"{sum(bool(a.is_aliased) for a in each)} of {len(each)} arrays"
    taken = "not known how much" if aliased is None else f"{arrays}, {size(aliased)}"
    rows: list[Line] = [(a.path, a.spec, size(a.size_bytes), _TAKEN[a.is_aliased], a.output or a.why_not) for a in each]
    title = f"donation: {taken} of {size(found.donation.asked_bytes)}, reused by outputs"
    return _table(title, build_table((WHAT, "array", "size", "reused", WHERE), rows), full=full)


def _collectives(found: Inspection, full: bool, _: object) -> list[Block]:
    if found.collectives is None:
        return [Heading("collectives"), _nothing(found, "collectives")]
    if not found.collectives.calls:
        return [Heading("collectives"), Paragraph("none: the devices don't communicate")]
    total = found.collectives.bytes_per_call
    amount = "bytes not known, because a loop has an unknown length" if total is None else f"{size(total)} per call"
    rows: list[Line] = [
        (c.opcode, size(c.size_bytes), _known(c.trips), _known(c.group_size), c.groups, c.op_name)
        for c in found.collectives.calls
    ]
    title = f"collectives: {amount}, over {found.collectives.partitions} devices"
    return _table(title, build_table((OPERATION, "size", "trips", "devices", WHERE, LINE), rows), full=full)


def _known(number: int | None) -> str:
    return "not known" if number is None else str(number)


_PARTS: dict[str, Callable[[Inspection, bool, Roofline | None], list[Block]]] = {
    "overview": _overview,
    "cost": _cost,
    "memory": _memory,
    "constants": _constants,
    "donation": _donation,
    "collectives": _collectives,
}


def _table(title: str, table: Table | None, *, full: bool) -> list[Block]:
    return [] if table is None else [Heading(title), first_rows(table, full)]


def _text(found: Inspection, stage: Stage) -> str | None:
    return {"jaxpr": found.jaxpr and found.jaxpr.text, "stablehlo": found.stablehlo, "hlo": found.hlo}[stage]


def _nothing(found: Inspection, what: str) -> Paragraph:
    return Paragraph(f"not known, because {found.why_absent(what) or 'no reason was recorded'}", "faint")


# Sections of numbers, and tables.

MOST_NAMED = 8
"""Primitives or operations that one line names."""
MOST_ROWS = 15
"""The most rows of a table, unless it is wanted in full."""

OPERATION = TableColumn("operation", "names", 16, is_cut=True)
WHAT = TableColumn("what", "names", 20, breaks_words=True)

Line = tuple[str, ...]


def heading(found: Inspection) -> tuple[str, str]:
    """(the call, what it was built by)"""
    place = found.place
    devices = "" if place.device_count is None else plural(place.device_count, "device")
    parts = (place.device_kind or place.backend, devices, place.jax and f"jax {place.jax}")
    return f"{found.name}({found.signature})", " · ".join(part for part in parts if part)


def answer(found: Inspection) -> str:
    """64 FLOP, 512 B accessed, 1.00 KiB planned peak"""
    counts, plan = found.counts, found.memory
    flops = counts and counts.flops
    accessed, peak = counts and counts.bytes_accessed, plan and plan.predicted_peak_bytes
    parts = (
        "" if flops is None else count(flops, "FLOP"),
        "" if accessed is None else f"{size(accessed)} accessed",
        "" if peak is None else f"{size(peak)} planned peak",
    )
    return ", ".join(part for part in parts if part) or "work and memory are not known"


def overview(found: Inspection, roof: Roofline | None = None) -> list[Section]:
    program, memory = Section("program", tuple(_program_rows(found))), Section("memory", tuple(_memory_rows(found)))
    return [program, *cost(found, roof), memory]


def cost(found: Inspection, roof: Roofline | None = None) -> list[Section]:
    sections = [Section("work of one call", tuple(_work(found)))]
    return sections if roof is None else [*sections, Section("roofline", tuple(_roofline(found, roof)))]


def _program_rows(found: Inspection) -> Iterable[TextRow]:
    jaxpr, counts = found.jaxpr, found.counts
    if jaxpr is None:
        yield _not_known(found, "equations", "jaxpr")
    else:
        nested = f"{jaxpr.outer_equations} outermost, in {jaxpr.depth} levels" if jaxpr.depth > 1 else "one level"
        loops = f"; {jaxpr.equations_in_loops} in bodies of loops, counted once" if jaxpr.equations_in_loops else ""
        yield TextRow("equations", str(jaxpr.equations), f"of the jaxpr: {nested}{loops}")
        names = _join_counts([(p.name, p.count) for p in jaxpr.primitives])
        yield TextRow("primitives", str(len(jaxpr.primitives)), names)
    if counts is None:
        yield _not_known(found, "instructions", "counts")
        return
    yield TextRow("instructions", str(sum(n for _, n in counts.instructions)), _join_counts(counts.instructions))
    yield TextRow("fusions", str(counts.fusions), "of the optimised program")
    if counts.loops:
        trips = ", ".join(f"{loop.name} × {'?' if loop.trips is None else loop.trips}" for loop in counts.loops)
        yield TextRow("loops", str(len(counts.loops)), trips)
    if counts.opaque_calls:
        yield TextRow("custom calls", str(sum(n for _, n in counts.opaque_calls)), _join_counts(counts.opaque_calls))


def _join_counts(pairs: Sequence[tuple[str, int]]) -> str:
    return ", ".join(list_some([f"{n} {name}" for name, n in pairs], MOST_NAMED))


def _work(found: Inspection) -> Iterable[TextRow]:
    counts = found.counts
    if counts is None:
        yield _not_known(found, "operations", "counts")
        return
    per_loop = "; bodies of loops × trip counts" if counts.loops else ""
    # No bound: a loop can run no body at all, and a call can take a smaller branch.
    partly = "" if counts.is_exact else "not exact; "
    for label, what, write, detail in (
        ("operations", "flops", partial(count, what="FLOP"), f"on one device{per_loop}"),
        ("transcendentals", "transcendentals", count, "exp, log, tanh …"),
        ("bytes accessed", "bytes_accessed", size, "read and written by instructions, cached or not"),
    ):
        value: float | None = getattr(counts, what)
        unknown = _not_known(found, label, f"counts.{what}")
        yield unknown if value is None else TextRow(label, write(value), partly + detail)
    if counts.arithmetic_intensity is not None:
        yield TextRow("intensity", f"{count(counts.arithmetic_intensity)} FLOP/B", "operations per byte accessed")
    if found.xla_cost and found.xla_cost.has_loops and found.xla_cost.flops is not None:
        yield TextRow("XLA's own count", count(found.xla_cost.flops, "FLOP"), "bodies of loops once", "faint")
    for restriction in counts.restrictions:
        yield TextRow("restriction", "", restriction, "warning")


def _roofline(found: Inspection, roof: Roofline) -> Iterable[TextRow]:
    why = {what: roof.why_absent(what) for what in ("bytes_s", "flops_s")}
    if why["bytes_s"] is not None and why["bytes_s"] == why["flops_s"]:
        yield TextRow("bytes, operations", "not known", f"because {why['bytes_s']}", "faint")
    else:
        for label, what, unit, time_s, per_s, by in (
            ("bytes take", "bytes_s", "B", roof.bytes_s, roof.bytes_per_s, f"with {size(roof.array_bytes)}"),
            ("operations take", "flops_s", "FLOP", roof.flops_s, roof.flops_per_s, f"by a matmul of {roof.dtype}"),
        ):
            row = TextRow(label, "not known", f"because {why[what]}", "faint")
            if time_s is not None and per_s is not None:
                row = TextRow(label, seconds(time_s), f"at {rate(per_s, unit)}, the highest rate measured {by}")
            yield row
        if roof.is_memory_bound is not None:
            meaning = "as counted; the rest might decide" if roof.is_at_least else HELPS[roof.is_memory_bound]
            yield TextRow("the longer one", "bytes" if roof.is_memory_bound else "operations", meaning)
    yield from _time_rows(roof)


HELPS = {
    True: "memory-bound: fewer or smaller reads and writes help first",
    False: "compute-bound: fewer operations or a smaller dtype help first",
}


def _time_rows(roof: Roofline) -> Iterable[TextRow]:
    if (timed := roof.timed) is None or timed.headline is None:
        yield TextRow("one call takes", "not measured", "because nothing was run; --time runs it", "faint")
        return
    s = timed.summary()
    ends = seconds_range(s.low_s, s.high_s)
    interval = f"95 % {ends}" if ends else "no interval"
    yield TextRow("one call takes", seconds(s.median_s), f"{interval}, by the {timed.headline.timer} timer")
    if roof.share is None:
        why = "the work is not counted exactly" if roof.is_at_least else "bytes or operations have no time"
        yield TextRow("share of roofline", "not known", f"because {why}", "faint")
        return
    above = "; above 100 %: caches served some of the bytes, or the rates were reached on a busy machine"
    yield TextRow(
        "share of roofline",
        percent(roof.share),
        f"{seconds(roof.roof_s or 0.0)} of {seconds(s.median_s)}" + (above if roof.share > 1 else ""),
    )


def _memory_rows(found: Inspection) -> Iterable[TextRow]:
    plan = found.memory
    if plan is None:
        yield _not_known(found, "planned peak", "memory")
    else:
        for label, value, detail in (
            ("arguments", plan.argument_bytes, "inputs of the program"),
            ("outputs", plan.output_bytes, "results of the program"),
            ("temporaries", plan.temp_bytes, "buffers during the call"),
            ("constants", plan.constant_bytes, "stored in the program"),
            ("aliased", plan.alias_bytes, "outputs that reuse donated arguments; subtracted"),
            ("planned peak", plan.predicted_peak_bytes, "the compiler's plan, not a measurement"),
        ):
            if value or label in ("temporaries", "planned peak"):
                row = TextRow(label, "not known", "because the compiler doesn't report it", "faint")
                yield row if value is None else TextRow(label, size(value), detail)
    if found.constants and found.constants.captured_bytes:
        yield TextRow("captured", size(found.constants.captured_bytes), "arrays that the function closes over")


def _not_known(found: Inspection, label: str, what: str) -> TextRow:
    return TextRow(label, "not known", f"because {found.why_absent(what) or 'no reason was recorded'}", "faint")


# ---- tables -----------------------------------------------------------------------------------------------------


def primitives(found: Inspection) -> Table | None:
    if found.jaxpr is None:
        return None
    lines: list[Line] = [
        (p.name, str(p.count), str(p.in_loops or ""), _few(p.scopes), _few(tuple(map(near, p.lines))))
        for p in found.jaxpr.primitives
    ]
    return build_table((OPERATION, "equations", "in loops", WHERE, LINE), lines)


def loops(found: Inspection) -> Table | None:
    each = found.counts.loops if found.counts else ()
    lines: list[Line] = [(loop.name, _known(loop.trips), loop.op_name, loop.trips_from) for loop in each]
    return build_table((OPERATION, "trips", WHERE, TableColumn("why", "words")), lines)


_TAKEN = {True: "yes", False: "no", None: "not known"}


def first_rows(table: Table, full: bool) -> Table:
    """Its first rows, and how many more there are."""
    more = len(table.rows) - MOST_ROWS
    # A line that says "1 more" would save nothing.
    if full or more <= 1:
        return table
    note = "; ".join(filter(None, (f"… {more} more; --full shows them", table.note)))
    return replace(table, rows=table.rows[:MOST_ROWS], note=note)


def build_table(columns: tuple[TableColumn | str, ...], lines: list[Line], note: str = "") -> Table | None:
    """Without columns that no line fills; None without lines."""
    found = tabulate(columns, lines, note=note).without_empty_columns()
    return found if found.columns else None


def _few(texts: tuple[str, ...]) -> str:
    more = f" +{len(texts) - 2}" if len(texts) > 2 else ""
    return ", ".join(texts[:2]) + more


def near(text: str) -> str:
    """With paths relative to the working folder where they are inside, or to that of installed packages."""
    return below_packages(text.replace(f"{Path.cwd()}/", ""))


COMPILER = "(the compiler's own)"


def document_with_charts(found: Inspection) -> Document:
    """As for a notebook, with charts before the texts of the program."""
    blocks = document_with_texts(found).blocks
    first = next((i for i, block in enumerate(blocks) if isinstance(block, Code)), len(blocks))
    program = () if found.operations is None else (Heading("program"), make_outline(found.operations))
    return Document((*blocks[:first], *charts(found), *program, *blocks[first:]))


def charts(found: Inspection) -> Iterator[Chart]:
    ways: tuple[tuple[str, Quantity, Callable[[LineWork], float]], ...] = (
        ("operations by scope and line", "flop", lambda work: work.flops),
        ("bytes by scope and line", "bytes", lambda work: work.bytes_accessed),
    )
    for title, quantity, value_of in ways:
        leaves = [
            ([*(part for part in work.scope.split("/") if part), work.source or COMPILER], value, work.source)
            for work in found.lines or ()
            if (value := value_of(work)) > 0
        ]
        if len(leaves) > 1:  # one area alone says no more than its number
            yield Chart(Axis(), Axis(), (Tree(grow(leaves), quantity),), title)
    if found.memory is not None and (memory := chart_memory(found.memory)) is not None:
        yield memory


MOST_BARS = 60
"""The number of bars that fit next to a narrow terminal's margin."""


def show_peak(found: Inspection, full: bool) -> list[Block]:
    """The temporaries that are needed at once, at most."""
    if (peak := found.peak) is None:
        return [Heading("temporaries at their peak"), _nothing(found, "peak")]
    rows: list[Line] = [
        (v.operation, v.spec, size(v.size_bytes), percent(v.size_bytes / peak.live_bytes), v.role, near(v.source))
        for v in peak.values
    ]
    value, role = TableColumn("value", "names"), TableColumn("role", "words")
    table = build_table((OPERATION, value, "size", "share", role, LINE), rows)
    bars = tuple(highest_of_stretches(peak.timeline, MOST_BARS))
    return [
        Heading(f"temporaries at their peak: {size(peak.live_bytes)}"),
        Paragraph(_describe_peak(peak)),
        Sparkline(bars, "memory in use over the program", is_linear=True),
        *([first_rows(table, full)] if table else []),
        *list_lines(_advise(found)),
    ]


def _describe_peak(peak: PeakMemory) -> str:
    where = f", {near(peak.at.source)}" if peak.at.source else ""
    gaps = peak.planned_bytes - peak.live_bytes
    beyond = f"; the plan has {size(gaps)} more, for alignment and gaps" if gaps else ", equal to the plan"
    return f"at {peak.at.operation}, instruction {peak.position + 1} of {peak.instructions}{where}{beyond}"


def _advise(found: Inspection) -> Iterator[str]:
    """Yields bounds from the memory plan alone. Only the plan of the changed program shows the real saving."""
    if kept := found.peak.sum_of("residual") if found.peak else 0:
        yield (
            f"{size(kept)} are residuals, kept from the forward pass for the backward pass: jax.checkpoint would "
            "recompute them, and save at most this much"
        )
    if possible := found.donation and found.donation.possible_bytes:
        yield (
            f"besides the temporaries: outputs could reuse {size(possible)} of arguments if you donate them "
            "(jax.jit(f, donate_argnums=...))"
        )


TITLES = {"jaxpr": "jaxpr", "stablehlo": "StableHLO", "hlo": "optimised HLO"}


def document_of_difference(found: Difference, show: Sequence[str] = (), *, full: bool = False) -> Document:
    """Numbers, operations and texts.

    Args:
        show: the stages whose texts the document shows; if empty, the first stage that differs.
    """
    blocks: list[Block] = [*list_lines((f"before  {found.before}", f"after   {found.after}"))]
    if found.is_none:
        blocks.append(Paragraph("no difference in what both report", "title"))
        return Document((*blocks, *_show_texts(found, show, full)))
    for title, changes in (
        ("numbers", found.numbers),
        ("primitives of the jaxpr", found.primitives),
        ("operations of the optimised program", found.opcodes),
        ("operations by line", found.line_flops),
        ("bytes by line", found.line_bytes),
    ):
        columns = (TableColumn("what", "names"), "before", "after", "change")
        blocks += [Heading(title), tabulate(columns, map(_change_line, changes))] if changes else []
    blocks += [Paragraph(f"unchanged: {', '.join(found.unchanged)}", "faint")] if found.unchanged else []
    return Document((*blocks, *_show_texts(found, show, full)))


def _change_line(c: NumberChange) -> tuple[str, ...]:
    return c.name, _change_value(c, c.before), _change_value(c, c.after), _describe_change(c)


def _change_value(change: NumberChange, value: float | None) -> str:
    if value is None:
        return "not known"
    if change.unit == "bytes":
        return size(value)
    # Show integers in full: one of 5000 operations less is a change.
    return str(int(value)) if change.unit == "count" else count(value, "FLOP", digits=4)


def _describe_change(change: NumberChange) -> str:
    """Added, removed, or by how much."""
    if change.before is None or change.after is None:
        return ""
    if change.before == 0 or change.after == 0:
        return "new" if change.before == 0 else "gone"
    return describe_ratio(change.after / change.before)


def _show_texts(found: Difference, show: Sequence[str], full: bool) -> Iterator[Block]:
    first = next((each.stage for each in found.texts if not each.is_same), None)
    for each in found.texts:
        is_shown = each.stage in show if show else each.stage == first
        where = "" if is_shown else f"; --show {each.stage} shows them"
        said = f"{each.added} {'line' if each.added == 1 else 'lines'} added, {each.removed} removed{where}"
        line = f"{TITLES[each.stage]}: {'the same' if each.is_same else said}"
        is_diff = is_shown and not each.is_same
        yield from (Heading(line), diff_text(each.unified, full)) if is_diff else (Paragraph(line),)
    for absent in found.absent:
        yield Paragraph(f"{TITLES.get(absent.what, absent.what)}: not compared, because {absent.why}")


# ---- texts of programs -------------------------------------------------------------------------------------------
#
# Folds long parts and drops noise. A line gives the length of each folded part. With `full`, the text is exactly what
# JAX and XLA print.

NESTED_LINES = 40
"""The most lines of one nested body."""
HEAD_LINES, TAIL_LINES = 250, 20
"""The first and last lines that are shown of the whole text."""
LINE_CHARACTERS = 400
OUTER_INDENT = 4
"""The indent of the outermost equations and operations, in jaxprs and in StableHLO."""

_HEX = re.compile(r'dense<"0x([0-9A-Fa-f]{64,})">')
_LIST = re.compile(r"dense<\[[^<>]{200,}\]>")
_TABLES = re.compile(r"^(?:FileNames|FunctionNames|FileLocations|StackFrames)\n(?:.+\n)*\n?", re.MULTILINE)
_BLANK = re.compile(r"\n{3,}")
_FRAME = re.compile(r" ?stack_frame_id=\d+| ?metadata=\{\},?")


def program_text(stage: Stage, text: str, full: bool = False, title: str = "") -> Code:
    """The text of a stage, folded unless it is wanted in full."""
    if full:
        return Code(stage, text.rstrip("\n"), title)
    if stage == "hlo":
        text = _FRAME.sub("", _BLANK.sub("\n\n", _TABLES.sub("", text)))
    text = _HEX.sub(lambda m: f'dense<"0x{m[1][:16]}… {size(len(m[1]) // 2)}">', text)
    text = _LIST.sub(lambda m: f"{m[0][:60]}… {len(m[0])} characters]>", text)
    lines = text.rstrip("\n").splitlines()
    indents = [len(line) - len(line.lstrip(" ")) > OUTER_INDENT for line in lines]
    nested = _in_inner_computation(lines) if stage == "hlo" else indents
    return Code(stage, "\n".join(_cut_lines(list(_fold(lines, nested)))), title)


def diff_text(unified: str, full: bool = False) -> Code:
    lines = unified.splitlines()
    return Code("diff", unified if full else "\n".join(_cut_lines([cap(line, LINE_CHARACTERS) for line in lines])))


def _in_inner_computation(lines: list[str]) -> Iterator[bool]:
    """Is a line of HLO in the body of a computation that is not the entry?"""
    in_entry = False
    for line in lines:
        if line and not line[0].isspace():
            in_entry = line.startswith("ENTRY")
        yield line.startswith(" ") and not in_entry


def _fold(lines: list[str], nested: Iterable[bool]) -> Iterator[str]:
    """Bodies of more than `NESTED_LINES` lines without what is beyond; long lines without their middles."""
    for is_inner, group in groupby(zip(lines, nested, strict=True), lambda pair: pair[1]):
        run = [cap(line, LINE_CHARACTERS) for line, _ in group]
        yield from _cut_lines(run, NESTED_LINES, 0) if is_inner else run


def _cut_lines(lines: list[str], head: int = HEAD_LINES, tail: int = TAIL_LINES) -> list[str]:
    left_out = len(lines) - head - tail
    if left_out <= 2:  # a line that says "2 lines" would spare none
        return lines
    indent = lines[head][: len(lines[head]) - len(lines[head].lstrip(" "))]
    return [*lines[:head], f"{indent}… {left_out} lines; --full shows them", *lines[len(lines) - tail :]]


OUTLINE_COLUMNS = (
    OutlineColumn("operations", "flop"),
    OutlineColumn("transcendentals"),
    OutlineColumn("bytes", "bytes"),
)
OUTLINE_CAPTION = "the optimised program: boxes with their contents"
OUTLINE_NOTE = (
    "Numbers are for one call, counted by benchax: bodies of loops times their trip counts. A fusion is where its "
    "result belongs, and contains everything that was fused into it; its bytes are what the fusion itself reads and "
    "writes. Parameters, constants, tuples and bitcasts do no work and are left out. A branch counts as if it were "
    "taken."
)
KINDS = {"while": "loop", "call": "call", "async-start": "call"}
MOST_PLAIN = 24
"""Operations side by side are folded by line if there are more of them than this."""
_LAYOUT = re.compile(r"(\[[^\]]*\])\{[^}]*\}|/\*.*?\*/")
_ARRAY = re.compile(r"[a-z]\w*\[[^\]]*\]")


def make_outline(found: HloOperations) -> Outline:
    folder = _Folder(found.listed)
    left_out = f" {plural(found.left_out, 'operation')} more, the deepest ones, are not listed." * bool(found.left_out)
    return Outline(OUTLINE_CAPTION, OUTLINE_COLUMNS, folder.fold_inside(None), OUTLINE_NOTE + left_out)


class _Folder:
    def __init__(self, listed: Sequence[HloOperation]) -> None:
        self.listed = listed
        self.inside = group_by(range(len(listed)), lambda number: listed[number].inside)

    def fold_inside(self, holder: int | None) -> tuple[OutlineEntry, ...]:
        """Returns the operations inside an operation: its body, its branches, or its fused operations."""
        around = "" if holder is None else self.listed[holder].scope
        by_part = group_by(self.inside.get(holder, ()), lambda number: self.listed[number].part)
        # Scopes inside of the one around; of another one all of it.
        scopes = {
            n: f"{self.listed[n].scope}/".removeprefix(f"{around}/").rstrip("/") for n in chain(*by_part.values())
        }
        folded = {part: self.fold([(n, scopes[n]) for n in numbers]) for part, numbers in by_part.items()}
        if len(folded) < 2:
            return next(iter(folded.values()), ())
        # Show the body first: the text starts with the condition, which is small.
        parts = sorted(folded, key=lambda part: part == "condition")
        return tuple(self.group(part, "", by_part[part], folded[part]) for part in parts)

    def fold(self, placed: Sequence[tuple[int, str]]) -> tuple[OutlineEntry, ...]:
        """Folds operations by the first step of their scopes, in the order of the first operation of each."""
        by_step = group_by(placed, lambda one: one[1].partition("/")[0])
        made = list(self.fold_plain([number for number, _ in by_step.pop("", [])]))
        for step, members in by_step.items():
            numbers = [number for number, _ in members]
            inner = self.fold([(number, scope.partition("/")[2]) for number, scope in members])
            made.append((numbers[0], self.group(step, "scope", numbers, inner)))
        return tuple(entry for _, entry in sorted(made, key=lambda pair: pair[0]))

    def fold_plain(self, numbers: Sequence[int]) -> Iterable[tuple[int, OutlineEntry]]:
        """(place of the first, entry)"""
        lines = group_by(numbers, lambda number: self.listed[number].source)
        is_folded = len(numbers) > MOST_PLAIN and len(lines) > 1
        for members in lines.values() if is_folded else ([number] for number in numbers):
            entries, line = tuple(map(self.entry, members)), self.listed[members[0]].source or COMPILER
            yield members[0], entries[0] if len(members) == 1 else self.group(line, "line", members, entries)

    def group(self, name: str, kind: str, members: Sequence[int], parts: tuple[OutlineEntry, ...]) -> OutlineEntry:
        values = zip(*(_values(self.listed[member]) for member in members), strict=True)
        detail = plural(len(members), "operation")
        return OutlineEntry(name, kind, tuple(map(_add, values)), detail, parts=parts)

    def entry(self, number: int) -> OutlineEntry:
        one = self.listed[number]
        detail = " · ".join(text for text in (_describe_shape(one.shape), one.remark) if text)
        kind = KINDS.get(one.opcode, one.opcode)
        parts = self.fold_inside(number)
        return OutlineEntry(one.name, kind, _values(one), detail, one.source, parts, number, one.reads)


def _values(one: HloOperation) -> tuple[float | None, ...]:
    return one.flops, one.transcendentals, one.bytes_accessed


def _add(values: Sequence[float | None]) -> float | None:
    """A sum with a hole in it is no sum."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _describe_shape(shape: str) -> str:
    """Without layout; a tuple as the number of its arrays."""
    plain = _LAYOUT.sub(r"\1", shape)
    return plural(len(_ARRAY.findall(plain)), "array") if plain.startswith("(") else plain
