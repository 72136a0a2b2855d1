"""Fits the table to a terminal: a row is one line if it fits, else its name is above its values.

Names, values, and units stay whole. If a line is too long, the blanks inside values go first, then tags without
information. A row that's still too long continues on another line. Colours have no width, and are put on last.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from benchax.reporting.document import Style, Table, TableCell

GAP = "  "
VERDICTS = ("slower", "faster", "same", "unclear")
USUAL = {"Tag": "base"}
"""The reason for which a column can be left out, by its name."""
Markup = Callable[[str, Style], str]


def fit(table: Table, width: int | None, markup: Markup = lambda text, style: text) -> list[str]:
    """Lines of at most `width` characters, but for names (the first column) and single cells that are longer.

    Args:
        width: None without a terminal: then each row is one line.
        markup: puts the colours of a style on a text.
    """
    forms = list(_forms(table))
    width = width or sys.maxsize
    for form in forms:
        widths = _widths(form)
        if _total(widths) <= width:
            return [_line(row, widths, markup) for row in form]
    below = [[row[1:] for row in form] for form in forms]
    values = next((form for form in below if _total(_widths(form)) <= width - len(GAP)), below[-1])
    parts = list(_parts(_widths(values), width - len(GAP)))
    heads, *rows = [[GAP + _line(row[part], _widths(values)[part], markup) for part in parts] for row in values]
    named = ([markup(row[0].text, row[0].style), *lines] for row, lines in zip(table.rows, rows, strict=True))
    return [*heads, *(line for lines in named for line in lines)]


def _forms(table: Table) -> Iterator[list[tuple[TableCell, ...]]]:
    """The rows with their header: as they are, with shorter values, and without usual columns."""
    rows = [tuple(TableCell(name) for name in table.names), *table.rows]
    yield rows
    rows = [tuple(replace(c, text=c.text.replace(" -> ", "->").replace(" ± ", "±")) for c in row) for row in rows]
    yield rows
    columns = zip(*table.rows, strict=True)
    kept = [i for i, cells in enumerate(columns) if {cell.text for cell in cells} != {USUAL.get(table.names[i])}]
    yield [tuple(row[i] for i in kept) for row in rows]


def _widths(rows: Sequence[Sequence[TableCell]]) -> list[int]:
    return [max(len(cell.text) for cell in column) for column in zip(*rows, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _line(row: Sequence[TableCell], widths: Sequence[int], markup: Markup) -> str:
    parts = [markup(c.text, c.style) + " " * (w - len(c.text)) for c, w in zip(row, widths, strict=True)]
    return GAP.join(parts).rstrip()


def _parts(widths: Sequence[int], width: int) -> Iterator[slice]:
    """The columns of each line."""
    start = 0
    for end in range(1, len(widths) + 1):
        if end == len(widths) or _total(widths[start : end + 1]) > width:
            yield slice(start, end)
            start = end
