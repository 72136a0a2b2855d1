"""The content of an inspection, in order and in words: sections of numbers, and tables.

An unknown value reads "not known, because …". Counts of the optimised program multiply bodies of loops by their trip
counts, and say so. Counts of the jaxpr include each body once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from benchax.reporting.document import Section, Table, TableColumn, TextRow, tabulate
from benchax.reporting.tables import LINE, WHERE
from benchax.results.inspection import Inspection
from benchax.results.roofline import Roofline
from benchax.source_files import below_packages
from benchax.units import count, percent, plural, rate, seconds, seconds_range, size

MOST_NAMED = 8
"""Primitives or operations that one line names."""
MOST_ROWS = 15
"""The most rows of a table, unless it is wanted in full."""

OPERATION = TableColumn("operation", "names", 16, breaks_words=True)
WHAT = TableColumn("what", "names", 20, breaks_words=True)

Line = tuple[str, ...]


def heading(found: Inspection) -> tuple[str, str]:
    """(the call, what it was built by)"""
    place = found.place
    devices = None if place.device_count is None else plural(place.device_count, "device")
    parts = [place.device_kind or place.backend, devices, f"jax {place.jax}" if place.jax else None]
    return f"{found.name}({found.signature})", " · ".join(part for part in parts if part)


def overview(found: Inspection, roof: Roofline | None = None) -> list[Section]:
    return [Section("program", tuple(_program(found))), *cost(found, roof), memory_section(found)]


def cost(found: Inspection, roof: Roofline | None = None) -> list[Section]:
    sections = [Section("work of one call", tuple(_work(found)))]
    return sections if roof is None else [*sections, Section("roofline", tuple(_roofline(found, roof)))]


def _program(found: Inspection) -> Iterable[TextRow]:
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
    more = f", and {len(pairs) - MOST_NAMED} others" if len(pairs) > MOST_NAMED else ""
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
    if roof.bytes_s is not None and roof.bytes_per_s is not None:
        reached = f"at {rate(roof.bytes_per_s, 'B')}, the best that was reached with {size(roof.array_bytes)}"
        yield TextRow("bytes take", seconds(roof.bytes_s), reached)
    else:
        yield TextRow("bytes take", "not known", f"because {roof.why_absent('bytes_s')}", "faint")
    if roof.flops_s is not None and roof.flops_per_s is not None:
        reached = f"at {rate(roof.flops_per_s, 'FLOP')}, the best that was reached by a matmul of {roof.dtype}"
        yield TextRow("operations take", seconds(roof.flops_s), reached)
    else:
        yield TextRow("operations take", "not known", f"because {roof.why_absent('flops_s')}", "faint")
    if roof.is_memory_bound is not None:
        yield TextRow("the longer one", "bytes" if roof.is_memory_bound else "operations", _meaning(roof))
    yield from _time_rows(roof)


def _meaning(roof: Roofline) -> str:
    if roof.is_at_least:
        return "of what could be counted; the rest may decide"
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
    return Section("memory", tuple(_memory(found)))


def _memory(found: Inspection) -> Iterable[TextRow]:
    plan = found.memory
    if plan is None:
        yield _not_known(found, "planned peak", "memory")
    else:
        parts = {
            "arguments": (plan.argument_bytes, "what the program takes"),
            "outputs": (plan.output_bytes, "what it returns"),
            "temporaries": (plan.temp_bytes, "what it needs meanwhile"),
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


def constants(found: Inspection) -> list[tuple[str, Table | None]]:
    """(title, table) of those captured, and of those baked in."""
    both = found.constants
    parts = (("captured by the function", both and both.captured), ("baked into the program", both and both.baked_in))
    return [
        (title, build_table((WHAT, "size", WHERE), [(c.spec, size(c.size_bytes), near(c.where)) for c in listed or ()]))
        for title, listed in parts
    ]


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
