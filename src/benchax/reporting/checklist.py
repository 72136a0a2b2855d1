"""A checklist in words: ✓, ✗ or –, the advice, and the measured value next to it."""

from __future__ import annotations

from benchax.reporting.document import Document, Heading, Style, Table, TableCell, TableColumn
from benchax.reporting.tables import one_line
from benchax.results.audit import Answer, Checklist, Tick
from benchax.units import seconds

MARKS: dict[Answer, tuple[str, Style]] = {
    "yes": ("✓", "good"),
    "no": ("✗", "bad"),
    "not applicable": ("–", "faint"),
    "not checked": ("?", "warning"),
}


COLUMNS = (TableColumn("", "words"), TableColumn("", "words", 20), TableColumn("", "words", 20))


def document(c: Checklist) -> Document:
    rows: list[tuple[TableCell, ...]] = []
    for section in dict.fromkeys(tick.section for tick in c.ticks):
        rows.append((TableCell(""), TableCell(section, "title"), TableCell("")))
        rows += [_list_cells(tick) for tick in c.ticks if tick.section == section]
    return Document((Heading(one_line(c.name), 1, (heading(c),)), Table(COLUMNS, tuple(rows))))


def _list_cells(tick: Tick) -> tuple[TableCell, ...]:
    mark, style = MARKS[tick.answer]
    return TableCell(mark, style), TableCell(tick.text), TableCell(describe_tick(tick), "faint")


def heading(c: Checklist) -> str:
    """f32[8] · cpu · 12 ✓, 2 ✗, 8 not applicable, 1 not checked · 41.0 s"""
    counts = {answer: sum(tick.answer == answer for tick in c.ticks) for answer in MARKS}
    words = {"yes": "✓", "no": "✗"}
    counted = ", ".join(f"{n} {words.get(answer, answer)}" for answer, n in counts.items() if n)
    backend = c.environment.backend if c.environment else ""
    return " · ".join(part for part in (c.signature, backend, counted, seconds(c.elapsed_s)) if part)


def describe_tick(tick: Tick) -> str:
    """not applicable, because there is one device"""
    if tick.answer in ("not applicable", "not checked"):
        return f"{tick.answer}, because {tick.why}"
    return tick.why
