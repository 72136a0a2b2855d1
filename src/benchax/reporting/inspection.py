"""What the compiler makes of a call, as a document: an overview, or one of its parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchax.reporting import inspection_tables as tables
from benchax.reporting import peak_memory as peak
from benchax.reporting import work_tables
from benchax.reporting.document import Block, Document, Facts, Heading, Paragraph, Table, list_lines, list_remarks
from benchax.reporting.program_text import program_text
from benchax.results.difference import Stage
from benchax.results.inspection import Inspection
from benchax.results.roofline import Roofline
from benchax.units import size

TEXTS: tuple[Stage, ...] = ("jaxpr", "stablehlo", "hlo")
PARTS = ("overview", *TEXTS, "cost", "memory", "constants", "donation", "collectives")
"""What can be drawn. A graph is a file (`program/graph.py`)."""


def document(
    found: Inspection, show: Sequence[str] = ("overview",), *, full: bool = False, roof: Roofline | None = None
) -> Document:
    """What is asked for, in that order.

    Args:
        show: of `PARTS`. One text alone comes without a heading, so that it can go into a file.
        full: nothing is folded.
        roof: beside the work; None leaves it out.
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
            ("by line", work_tables.lines(found, roof)),
            ("by scope", work_tables.scopes(found, roof)),
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
