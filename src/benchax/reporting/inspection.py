"""The compiled form of a call, as a document: an overview, or one of its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchax.reporting import inspection_tables as tables
from benchax.reporting import peak_memory as peak
from benchax.reporting.document import (
    Block,
    Document,
    Facts,
    Heading,
    Paragraph,
    Table,
    TableColumn,
    list_lines,
    list_remarks,
)
from benchax.reporting.inspection_tables import Line, build_table, near
from benchax.reporting.program_text import program_text
from benchax.reporting.roofline_words import BOUND
from benchax.reporting.tables import LINE_NAMES, SCOPE_NAMES
from benchax.results.difference import Stage
from benchax.results.inspection import Inspection, LineWork
from benchax.results.roofline import Roofline
from benchax.source_files import NOT_YOURS
from benchax.units import count, percent, rate, seconds, size

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
    counted = ", of what could be counted" if roof.is_at_least else ""
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
    title, where = tables.heading(found)
    blocks: list[Block] = [Heading(title, 1, (where,))]
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
    sections = tables.overview(found, roof) if part == "overview" else tables.cost(found, roof)
    shown = [("primitives", tables.primitives(found))]
    if part == "cost":
        shown = [
            ("by line", lines(found, roof)),
            ("by scope", scopes(found, roof)),
            ("loops", tables.loops(found)),
        ]
    listed = [block for title, table in shown for block in _table(title, table, full=full)]
    return [*(Facts((section,)) for section in sections), *listed]


def _memory(found: Inspection, full: bool) -> list[Block]:
    facts = Facts((tables.memory_section(found),))
    if found.buffers is None:
        return [facts, Heading("buffers"), _nothing(found, "buffers"), *peak.show(found, full)]
    notes = list[str]()
    if found.buffers.method == "program text":
        notes.append("arguments, outputs and constants only: the plan itself could not be read")
    if missing := ", ".join(f"{size(n)} of kind {kind}" for kind, n in found.buffers.unattributed):
        notes.append(f"not attributed to any buffer: {missing}")
    listed = _table("buffers", tables.buffers(found), full=full)
    return [facts, *listed, *list_lines(notes, "faint"), *peak.show(found, full)]


def _constants(found: Inspection, full: bool) -> list[Block]:
    blocks: list[Block] = []
    known = found.constants
    listed = (known and known.captured, known and known.baked_in)
    names = ("constants.captured", "constants.baked_in")
    for (title, table), constants, what in zip(tables.constants(found), listed, names, strict=True):
        if constants is None:
            blocks += [Heading(title), _nothing(found, what)]
        elif table is None:
            blocks += [Heading(title), Paragraph("none")]
        else:
            blocks += _table(f"{title}: {size(sum(c.size_bytes for c in constants))}", table, full=full)
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
    return _table(title, tables.donation(found), full=full)


def _collectives(found: Inspection, full: bool) -> list[Block]:
    if found.collectives is None:
        return [Heading("collectives"), _nothing(found, "collectives")]
    if not found.collectives.calls:
        return [Heading("collectives"), Paragraph("none: the devices say nothing to one another")]
    total = found.collectives.bytes_per_call
    amount = "bytes not known, because of a loop of unknown length" if total is None else f"{size(total)} per call"
    split = f"over {found.collectives.partitions} devices"
    return _table(f"collectives: {amount}, {split}", tables.collectives(found), full=full)


_PARTS: dict[str, Callable[[Inspection, bool], list[Block]]] = {
    "memory": _memory,
    "constants": _constants,
    "donation": _donation,
    "collectives": _collectives,
}


def _table(title: str, table: Table | None, *, full: bool) -> list[Block]:
    return [] if table is None else [Heading(title), tables.first_rows(table, full)]


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
