"""An outline as a table, for media that cannot unfold it: a terminal, Markdown, a notebook, paper."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchax.reporting.chart import Quantity, describe_value
from benchax.reporting.document import Table, TableColumn, tabulate
from benchax.reporting.outline import Outline, OutlineEntry

UNKNOWN = "not known"
INDENT = "> "
MOST_ROWS = 60


def tabulate_outline(outline: Outline) -> Table:
    """Makes a table, for media that cannot unfold an outline."""
    rows = list_outermost(outline, MOST_ROWS)
    listed = [_describe_row(outline, *row) for row in rows]
    outer = sum(depth == 0 for depth, _, _ in rows)
    left_out = len(outline.entries) - outer
    note = f"{outline.note} {left_out} boxes beside these are not in this table." if left_out else outline.note
    names = (TableColumn("box", "words", 24), *(TableColumn(column.name) for column in outline.columns))
    columns = (*names, TableColumn("where", "words", 16), TableColumn("what", "words", 24))
    return tabulate(columns, listed, note=note).without_empty_columns(kept=(0,))


def _describe_row(outline: Outline, depth: int, entry: OutlineEntry, inside: int) -> tuple[str, ...]:
    numbers = (describe_cost(v, c.quantity) for v, c in zip(entry.values, outline.columns, strict=True))
    what = " · ".join(text for text in (entry.detail, f"{inside} boxes inside" if inside else "") if text)
    return (f"{INDENT * depth}{entry.kind} {entry.name}".strip(), *numbers, entry.source, what)


def describe_cost(value: float | None, quantity: Quantity) -> str:
    """Returns a text such as 1.05 MFLOP, or an empty text if there is no value."""
    return UNKNOWN if value is None else describe_value(value, quantity) if value else ""


def count_inside(entry: OutlineEntry) -> int:
    return sum(1 + count_inside(part) for part in entry.parts)


def list_outermost(outline: Outline, most: int) -> list[tuple[int, OutlineEntry, int]]:
    """(depth, entry, how many inside of it are not listed): whole levels as long as they fit, of the outermost one as
    many as fit."""
    outermost = outline.entries[:most]
    return list(_walk(outermost, 0, _count_levels(outermost, most)))


def _count_levels(entries: Sequence[OutlineEntry], most: int) -> int:
    levels, count, level = 0, 0, list(entries)
    while level and count + len(level) <= most:
        levels, count = levels + 1, count + len(level)
        level = [part for entry in level for part in entry.parts]
    return levels


def _walk(entries: Sequence[OutlineEntry], depth: int, levels: int) -> Iterator[tuple[int, OutlineEntry, int]]:
    for entry in entries:
        is_last = depth + 1 == levels
        yield depth, entry, count_inside(entry) if is_last else 0
        if not is_last:
            yield from _walk(entry.parts, depth + 1, levels)
