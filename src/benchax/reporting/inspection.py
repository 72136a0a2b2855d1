"""The compiled form of a call, as a document: an overview, or one of its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchax.reporting.chart import Axis, Chart, Quantity, Tree, grow
from benchax.reporting.document import (
    Block,
    Code,
    Document,
    Facts,
    Heading,
    Paragraph,
    Section,
    Sparkline,
    Table,
    TableColumn,
    TextRow,
    list_lines,
    list_remarks,
    tabulate,
)
from benchax.reporting.measurement import chart_memory
from benchax.reporting.program_text import diff_text, make_outline, program_text
from benchax.reporting.tables import BOUND, LINE, LINE_NAMES, SCOPE_NAMES, WHERE
from benchax.results.inspection import (
    Difference,
    Inspection,
    LineWork,
    NumberChange,
    PeakMemory,
    Stage,
    TextDifference,
    highest_of_stretches,
)
from benchax.results.roofline import Roofline
from benchax.source_files import NOT_YOURS, below_packages
from benchax.units import count, percent, plural, rate, seconds, seconds_range, size

# Shows the work of a program by line and by named scope, and its time at the rates of this machine.
#
# The time is estimated from the program's text: the larger of the times for bytes and for FLOPs. A kernel reads,
# computes, and writes at once. So its FLOPs count at the same line as its bytes, whichever lines they come from.


@dataclass
class _Sum:
    """The total of all items with one name."""

    flops: float = 0.0
    transcendentals: float = 0.0
    moved_bytes: float = 0.0
    kernel_flops: float | None = 0.0

    def add(self, one: LineWork) -> None:
        self.flops += one.flops
        self.transcendentals += one.transcendentals
        self.moved_bytes += one.bytes_accessed
        known = self.kernel_flops is not None and one.kernel_flops is not None
        self.kernel_flops = (self.kernel_flops or 0.0) + (one.kernel_flops or 0.0) if known else None


def lines(found: Inspection, roof: Roofline | None = None) -> Table | None:
    """Lists the work by line, and each line's share of the memory at its peak. A share of operations appears only if
    their sum is complete."""
    held: dict[str, int] = {}
    for value in found.peak.values if found.peak else ():
        held[near(value.source or NOT_YOURS)] = held.get(near(value.source or NOT_YOURS), 0) + value.size_bytes
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
    sums = {place: _Sum() for place in held or ()}
    for one in found.lines or ():
        sums.setdefault(near(name(one)), _Sum()).add(one)
    whole = found.counts.flops if found.counts else None
    listed: list[Line] = [
        (
            place,
            count(work.flops, "FLOP"),
            percent(work.flops / whole) if whole else "",
            count(work.transcendentals),
            size(work.moved_bytes),
            *_beside_roofline(work, roof),
            _size_or_nothing(held, place),
        )
        for place, work in sorted(sums.items(), key=lambda pair: (-pair[1].flops, -pair[1].moved_bytes))
    ]
    columns = (column, "operations", "share", "transcendentals", "bytes", "least time", "bound by", "at the peak")
    return build_table(columns, listed, _describe(roof) if listed else "")


def _beside_roofline(work: _Sum, roof: Roofline | None) -> tuple[str, str]:
    """Returns (the longer of bytes and FLOPs at the machine's rates, which of the two it is). Both are empty if one is
    not known, or if all of the work is fused into kernels of other lines."""
    if roof is None or not roof.bytes_per_s or not roof.flops_per_s or work.kernel_flops is None:
        return "", ""
    bytes_s, flops_s = work.moved_bytes / roof.bytes_per_s, work.kernel_flops / roof.flops_per_s
    least_s = max(bytes_s, flops_s)
    return (seconds(least_s), BOUND[bytes_s >= flops_s]) if least_s else ("", "")


def _describe(roof: Roofline | None) -> str:
    if roof is None or not roof.bytes_per_s or not roof.flops_per_s:
        return ""  # the roofline of the whole program says why
    rates = f"{rate(roof.bytes_per_s, 'B')} and {rate(roof.flops_per_s, 'FLOP')}"
    counted = ", for the counted part" if roof.is_at_least else ""
    return f"least time: estimated; the longer of the bytes and of the FLOPs of their kernels, at {rates}{counted}"


def _size_or_nothing(sizes: Mapping[str, int] | None, name: str) -> str:
    return size(sizes[name]) if sizes and name in sizes else ""


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
    if len(show) == 1 and (alone := _text(found, show[0])) is not None:
        return Document((program_text(_stage(show[0]), alone, full),))
    title, where = heading(found)
    blocks: list[Block] = [Heading(f"{title}: {answer(found)}", 1, (where,))]
    for part in show:
        if part in TEXTS:
            blocks += _program(found, part, full)
        elif part in ("overview", "cost"):
            blocks += _overview(found, part, full, roof)
        else:
            blocks += _PARTS[part](found, full)
    if "overview" in show:
        blocks += list_remarks(found.remarks)
    return Document(tuple(blocks))


def document_with_texts(found: Inspection) -> Document:
    """For a page, which folds the texts."""
    return document(found, ("overview", *(stage for stage in TEXTS if _text(found, stage) is not None)))


def _overview(found: Inspection, part: str, full: bool, roof: Roofline | None) -> list[Block]:
    sections = overview(found, roof) if part == "overview" else cost(found, roof)
    shown = [("primitives", primitives(found))]
    if part == "cost":
        shown = [
            ("by line", lines(found, roof)),
            ("by scope", scopes(found, roof)),
            ("loops", loops(found)),
        ]
    listed = [block for title, table in shown for block in _table(title, table, full=full)]
    return [*(Facts((section,)) for section in sections), *listed]


def _memory(found: Inspection, full: bool) -> list[Block]:
    facts = Facts((memory_section(found),))
    if found.buffers is None:
        return [facts, Heading("buffers"), _nothing(found, "buffers"), *show_peak(found, full)]
    notes = list[str]()
    if found.buffers.method == "program text":
        notes.append("arguments, outputs and constants only: the plan itself could not be read")
    if missing := ", ".join(f"{size(n)} of kind {kind}" for kind, n in found.buffers.unattributed):
        notes.append(f"not attributed to any buffer: {missing}")
    listed = _table("buffers", buffers(found), full=full)
    return [facts, *listed, *list_lines(notes, "faint"), *show_peak(found, full)]


def _constants(found: Inspection, full: bool) -> list[Block]:
    """The captured ones, and those baked in."""
    blocks: list[Block] = []
    both = found.constants
    for title, what, listed in (
        ("captured by the function", "captured", both and both.captured),
        ("baked into the program", "baked_in", both and both.baked_in),
    ):
        if listed is None:
            blocks += [Heading(title), _nothing(found, f"constants.{what}")]
        elif not listed:
            blocks += [Heading(title), Paragraph("none")]
        else:
            table = build_table((WHAT, "size", WHERE), [(c.spec, size(c.size_bytes), near(c.where)) for c in listed])
            blocks += _table(f"{title}: {size(sum(c.size_bytes for c in listed))}", table, full=full)
    return blocks


def _donation(found: Inspection, full: bool) -> list[Block]:
    if found.donation is None:
        return [Heading("donation"), _nothing(found, "donation")]
    if not found.donation.arguments:
        return [Heading("donation"), Paragraph("no argument is donated")]
    aliased = found.donation.aliased_bytes
    each = found.donation.arguments
    arrays = f"{sum(bool(a.is_aliased) for a in each)} of {len(each)} arrays"
    taken = "not known how much" if aliased is None else f"{arrays}, {size(aliased)}"
    title = f"donation: {taken} of {size(found.donation.asked_bytes)}, reused by outputs"
    return _table(title, donation(found), full=full)


def _collectives(found: Inspection, full: bool) -> list[Block]:
    if found.collectives is None:
        return [Heading("collectives"), _nothing(found, "collectives")]
    if not found.collectives.calls:
        return [Heading("collectives"), Paragraph("none: the devices say nothing to one another")]
    total = found.collectives.bytes_per_call
    amount = "bytes not known, because of a loop of unknown length" if total is None else f"{size(total)} per call"
    split = f"over {found.collectives.partitions} devices"
    return _table(f"collectives: {amount}, {split}", collectives(found), full=full)


_PARTS: dict[str, Callable[[Inspection, bool], list[Block]]] = {
    "memory": _memory,
    "constants": _constants,
    "donation": _donation,
    "collectives": _collectives,
}


def _table(title: str, table: Table | None, *, full: bool) -> list[Block]:
    return [] if table is None else [Heading(title), first_rows(table, full)]


def _program(found: Inspection, stage: str, full: bool) -> list[Block]:
    whole = _text(found, stage)
    if whole is None:
        return [Heading(stage), _nothing(found, stage)]
    return [program_text(_stage(stage), whole, full, title=stage)]


def _text(found: Inspection, stage: str) -> str | None:
    jaxpr = found.jaxpr.text if found.jaxpr else None
    return {"jaxpr": jaxpr, "stablehlo": found.stablehlo, "hlo": found.hlo}.get(stage)


def _stage(name: str) -> Stage:
    return next(stage for stage in TEXTS if stage == name)


def _nothing(found: Inspection, what: str) -> Paragraph:
    return Paragraph(f"not known, because {found.why_absent(what) or 'nobody tells'}", "faint")


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
    devices = None if place.device_count is None else plural(place.device_count, "device")
    parts = [place.device_kind or place.backend, devices, f"jax {place.jax}" if place.jax else None]
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
    return [Section("program", tuple(_program_rows(found))), *cost(found, roof), memory_section(found)]


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


def _join_counts(listed: Iterable[tuple[str, int]]) -> str:
    pairs = list(listed)
    more = f", and {len(pairs) - MOST_NAMED} more" if len(pairs) > MOST_NAMED else ""
    return ", ".join(f"{n} {name}" for name, n in pairs[:MOST_NAMED]) + more


def _work(found: Inspection) -> Iterable[TextRow]:
    counts = found.counts
    if counts is None:
        yield _not_known(found, "operations", "counts")
        return
    per_loop = "; bodies of loops × trip counts" if counts.loops else ""
    yield _count_row(found, "operations", "counts.flops", counts.flops, f"on one device{per_loop}", "FLOP")
    yield _count_row(found, "transcendentals", "counts.transcendentals", counts.transcendentals, "exp, log, tanh …")
    bytes_accessed = counts.bytes_accessed
    if bytes_accessed is None:
        yield _not_known(found, "bytes accessed", "counts.bytes_accessed")
    else:
        least = "" if counts.is_exact else "at least; "
        yield TextRow("bytes accessed", size(bytes_accessed), f"{least}read and written by instructions, cached or not")
    if counts.arithmetic_intensity is not None:
        yield TextRow("intensity", f"{count(counts.arithmetic_intensity)} FLOP/B", "operations by bytes accessed")
    if found.xla_cost and found.xla_cost.has_loops and found.xla_cost.flops is not None:
        yield TextRow("XLA's own count", count(found.xla_cost.flops, "FLOP"), "bodies of loops once", "faint")
    for restriction in counts.restrictions:
        yield TextRow("restriction", "", restriction, "warning")


def _count_row(found: Inspection, label: str, what: str, value: float | None, detail: str, unit: str = "") -> TextRow:
    if value is None:
        return _not_known(found, label, what)
    least = "" if found.counts and found.counts.is_exact else "at least; "
    return TextRow(label, count(value, unit), least + detail)


def _roofline(found: Inspection, roof: Roofline) -> Iterable[TextRow]:
    why = roof.why_absent("bytes_s")
    if why is not None and why == roof.why_absent("flops_s"):
        yield TextRow("bytes, operations", "not known", f"because {why}", "faint")
        yield from _time_rows(roof)
        return
    for label, what, unit, time_s, per_s, by in (
        ("bytes take", "bytes_s", "B", roof.bytes_s, roof.bytes_per_s, f"with {size(roof.array_bytes)}"),
        ("operations take", "flops_s", "FLOP", roof.flops_s, roof.flops_per_s, f"by a matmul of {roof.dtype}"),
    ):
        if time_s is None or per_s is None:
            yield TextRow(label, "not known", f"because {roof.why_absent(what)}", "faint")
        else:
            yield TextRow(label, seconds(time_s), f"at {rate(per_s, unit)}, the best that was reached {by}")
    if roof.is_memory_bound is not None:
        yield TextRow("the longer one", "bytes" if roof.is_memory_bound else "operations", _meaning(roof))
    yield from _time_rows(roof)


def _meaning(roof: Roofline) -> str:
    if roof.is_at_least:
        return "for the counted part; the rest can decide"
    if roof.is_memory_bound:
        return "memory-bound: fewer or smaller reads and writes help first"
    return "compute-bound: fewer operations or a smaller dtype help first"


def _time_rows(roof: Roofline) -> Iterable[TextRow]:
    if roof.timing is None:
        yield TextRow("one call takes", "not measured", "because nothing was run; --time runs it", "faint")
        return
    timing = roof.timing
    known = timing.low_s is not None and timing.high_s is not None
    interval = f"95 % {seconds_range(timing.low_s or 0.0, timing.high_s or 0.0)}, " if known else "no interval, "
    yield TextRow("one call takes", seconds(timing.median_s), f"{interval}by the {timing.timer} timer")
    if roof.share is None:
        why = "some of the work is not counted" if roof.is_at_least else "bytes or operations have no time"
        yield TextRow("share of roofline", "not known", f"because {why}", "faint")
        return
    above = "; above 100 %: caches served some of the bytes, or the rates were reached on a busy machine"
    yield TextRow(
        "share of roofline",
        percent(roof.share),
        f"{seconds(roof.roof_s or 0.0)} of {seconds(timing.median_s)}" + (above if roof.share > 1 else ""),
    )


def memory_section(found: Inspection) -> Section:
    return Section("memory", tuple(_memory_rows(found)))


def _memory_rows(found: Inspection) -> Iterable[TextRow]:
    plan = found.memory
    if plan is None:
        yield _not_known(found, "planned peak", "memory")
    else:
        parts = {
            "arguments": (plan.argument_bytes, "what the program takes"),
            "outputs": (plan.output_bytes, "what it returns"),
            "temporaries": (plan.temp_bytes, "what it needs during the call"),
            "constants": (plan.constant_bytes, "baked into the program"),
            "aliased": (plan.alias_bytes, "outputs in the memory of donated arguments; taken off"),
        }
        for label, (value, detail) in parts.items():
            if value or label == "temporaries":
                row = TextRow(label, "not known", "the compiler does not tell", "faint")
                yield row if value is None else TextRow(label, size(value), detail)
        peak = plan.predicted_peak_bytes
        if peak is None:
            yield TextRow("planned peak", "not known", "because the compiler does not tell", "faint")
        else:
            yield TextRow("planned peak", size(peak), "the compiler's plan; nothing was observed")
    if found.constants and found.constants.captured_bytes:
        yield TextRow("captured", size(found.constants.captured_bytes), "arrays that the Python function closes over")


def _not_known(found: Inspection, label: str, what: str) -> TextRow:
    return TextRow(label, "not known", f"because {found.why_absent(what) or 'nobody tells'}", "faint")


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
    lines: list[Line] = [
        (loop.name, "not known" if loop.trips is None else str(loop.trips), loop.op_name, loop.trips_from)
        for loop in each
    ]
    return build_table((OPERATION, "trips", WHERE, TableColumn("why", "words")), lines)


def buffers(found: Inspection) -> Table | None:
    listed = found.buffers.buffers if found.buffers else ()
    lines: list[Line] = [(b.what, size(b.size_bytes), b.kind, b.op_name, near(b.source)) for b in listed]
    return build_table((WHAT, "size", "kind", WHERE, LINE), lines)


def donation(found: Inspection) -> Table | None:
    lines: list[Line] = [
        (a.path, a.spec, size(a.size_bytes), _TAKEN[a.is_aliased], a.output or a.why_not)
        for a in (found.donation.arguments if found.donation else ())
    ]
    return build_table((WHAT, "array", "size", "reused", WHERE), lines)


_TAKEN = {True: "yes", False: "no", None: "not known"}


def collectives(found: Inspection) -> Table | None:
    lines: list[Line] = [
        (
            c.opcode,
            size(c.size_bytes),
            "not known" if c.trips is None else str(c.trips),
            "not known" if c.group_size is None else str(c.group_size),
            c.groups,
            c.op_name,
        )
        for c in (found.collectives.calls if found.collectives else ())
    ]
    return build_table((OPERATION, "size", "trips", "devices", WHERE, LINE), lines)


def first_rows(table: Table, full: bool) -> Table:
    """Its first rows, and how many more there are."""
    more = len(table.rows) - MOST_ROWS
    # A line that says "1 more" would spare none.
    if full or more <= 1:
        return table
    note = "; ".join(part for part in (f"… {more} more; --full shows them", table.note) if part)
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
        roots = grow(
            ([*(part for part in work.scope.split("/") if part), work.source or COMPILER], value_of(work), work.source)
            for work in found.lines or ()
        )
        if roots:
            yield Chart(Axis(), Axis(), (Tree(roots, quantity),), title)
    if found.memory is not None and (memory := chart_memory(found.memory)) is not None:
        yield memory


MOST_BARS = 60
"""The number of bars that fit next to a narrow terminal's margin."""


def show_peak(found: Inspection, full: bool) -> list[Block]:
    """The temporaries that are needed at once, at most."""
    if found.peak is None:
        why = found.why_absent("peak") or "nobody tells"
        return [Heading("temporaries at their peak"), Paragraph(f"not known, because {why}", "faint")]
    return [
        Heading(f"temporaries at their peak: {size(found.peak.live_bytes)}"),
        Paragraph(_describe_peak(found.peak)),
        Sparkline(
            tuple(highest_of_stretches(found.peak.timeline, MOST_BARS)),
            "what is needed, over the program",
            is_linear=True,
        ),
        *(first_rows(table, full) for table in [_tabulate_peak(found.peak)] if table),
        *list_lines(_advise(found)),
    ]


def _describe_peak(peak: PeakMemory) -> str:
    where = f", {near(peak.at.source)}" if peak.at.source else ""
    gaps = peak.planned_bytes - peak.live_bytes
    beyond = f"; the plan has {size(gaps)} more, for alignment and gaps" if gaps else ", which is all that the plan has"
    return f"at {peak.at.operation}, instruction {peak.position + 1} of {peak.instructions}{where}{beyond}"


def _tabulate_peak(peak: PeakMemory) -> Table | None:
    lines: list[Line] = [
        (v.operation, v.spec, size(v.size_bytes), percent(v.size_bytes / peak.live_bytes), v.role, near(v.source))
        for v in peak.values
    ]
    value, role = TableColumn("value", "names"), TableColumn("role", "words")
    return build_table((OPERATION, value, "size", "share", role, LINE), lines)


def _advise(found: Inspection) -> Iterator[str]:
    """Yields bounds from the memory plan alone. Only the plan of the changed program shows the real saving."""
    kept = found.peak.sum_of("residual") if found.peak else 0
    if kept:
        yield (
            f"{size(kept)} are residuals, kept on the way forward for the way back: jax.checkpoint would compute them "
            "again, and save this much at most"
        )
    possible = found.donation.possible_bytes if found.donation else None
    if possible:
        yield (
            f"in addition to the temporaries: outputs could have the memory of {size(possible)} of arguments, if those "
            "were donated (jax.jit(f, donate_argnums=...))"
        )


TITLES = {"jaxpr": "jaxpr", "stablehlo": "StableHLO", "hlo": "optimised HLO"}


def document_of_difference(found: Difference, show: Sequence[str] = (), *, full: bool = False) -> Document:
    """Numbers, operations and texts.

    Args:
        show: the stages whose texts the document shows; if empty, the first stage that differs.
    """
    heads = list_lines((f"before  {found.before}", f"after   {found.after}"))
    if found.is_none:
        nothing = Paragraph("no difference in what both know", "title")
        return Document((*heads, nothing, *_show_texts(found, show, full)))
    tables = [
        *_change_table("numbers", found.numbers),
        *_change_table("primitives of the jaxpr", found.primitives),
        *_change_table("operations of the optimised program", found.opcodes),
        *_change_table("operations by line", found.line_flops),
        *_change_table("bytes by line", found.line_bytes),
    ]
    same = [Paragraph(f"unchanged: {', '.join(found.unchanged)}", "faint")] if found.unchanged else []
    return Document((*heads, *tables, *same, *_show_texts(found, show, full)))


def _change_table(title: str, changes: Sequence[NumberChange]) -> list[Block]:
    if not changes:
        return []
    lines = [(c.name, _change_value(c, c.before), _change_value(c, c.after), _describe_change(c)) for c in changes]
    return [Heading(title), tabulate((TableColumn("what", "names"), "before", "after", "change"), lines)]


def _change_value(change: NumberChange, value: float | None) -> str:
    if value is None:
        return "not known"
    if change.unit == "bytes":
        return size(value)
    # Whole numbers as they are: of 5000 operations, one less is news.
    return str(int(value)) if change.unit == "count" else count(value, "FLOP", digits=4)


def _describe_change(change: NumberChange) -> str:
    """Added, removed, or by how much."""
    if change.before is None or change.after is None:
        return ""
    if change.before == 0:
        return "new"
    if change.after == 0:
        return "gone"
    more = change.after / change.before - 1
    return f"{'+' if more > 0 else ''}{percent(more)}"


def _show_texts(found: Difference, show: Sequence[str], full: bool) -> list[Block]:
    blocks: list[Block] = []
    first = next((each.stage for each in found.texts if not each.is_same), None)
    for each in found.texts:
        is_shown = each.stage in show if show else each.stage == first
        line = f"{TITLES[each.stage]}: {_describe_difference(each, is_shown)}"
        blocks += [Heading(line), diff_text(each.unified, full)] if is_shown and not each.is_same else [Paragraph(line)]
    return blocks + [
        Paragraph(f"{TITLES.get(absent.what, absent.what)}: not compared, because {absent.why}")
        for absent in found.absent
    ]


def _describe_difference(each: TextDifference, is_shown: bool) -> str:
    if each.is_same:
        return "the same"
    where = "" if is_shown else f"; --show {each.stage} shows them"
    return f"{each.added} {'line' if each.added == 1 else 'lines'} added, {each.removed} removed{where}"
