"""Fits the table to a terminal: one line for a row where that fits, else its name above it, else folded cells.

Names of tests are what people copy, so they are never cut. Colours have no width, and are put on when all is in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from benchax.reporting.document import Style, Table, TableCell

GAP = "  "
VERDICTS = ("slower", "faster", "same", "unclear")
Markup = Callable[[str, Style], str]


def fit(table: Table, width: int, markup: Markup = lambda text, style: text) -> list[str]:
    """Lines of at most `width` characters, but for names (the first column) that are longer.

    Args:
        markup: puts the colours of a style on a text.
    """
    rows = [tuple(TableCell(name) for name in table.names), *table.rows]
    widths = _widths(rows)
    if _total(widths) <= width:
        return [_line(row, widths, markup) for row in rows]
    rest = [row[1:] for row in rows]
    folded = _narrow(rest, width - len(GAP))
    lines = _fold_row(rest[0], folded, markup)
    for row, cells in zip(table.rows, rest[1:], strict=True):
        lines += [markup(row[0].text, row[0].style), *_fold_row(cells, folded, markup)]
    return lines


def _widths(rows: Sequence[Sequence[TableCell]]) -> list[int]:
    return [max(len(cell.text) for cell in column) for column in zip(*rows, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _line(row: Sequence[TableCell], widths: Sequence[int], markup: Markup) -> str:
    parts = [markup(c.text, c.style) + " " * (w - len(c.text)) for c, w in zip(row, widths, strict=True)]
    return GAP.join(parts).rstrip()


def _narrow(rows: Sequence[Sequence[TableCell]], width: int) -> list[int]:
    """Widths of the columns that fit, or the least possible: the widest one gives way, down to its longest piece."""
    widths = _widths(rows)
    least = [max(_least(cell.text) for cell in column) for column in zip(*rows, strict=True)]
    while _total(widths) > width:
        foldable = [i for i, w in enumerate(widths) if w > least[i]]
        if not foldable:
            break
        widths[max(foldable, key=lambda i: widths[i])] -= 1
    return widths


def _pieces(text: str) -> list[str]:
    """What stays together: the old value with its arrow, the new one, its ends, the verdict; words one by one."""
    if not any(map(str.isdigit, text)):
        return text.split()
    before, arrow, after = text.rpartition(" -> ")
    number, space, word = after.rpartition(" ")
    value, verdict = (number, [word]) if space and word in VERDICTS else (after, [])
    middle, bracket, ends = value.partition(" (")
    parts = [middle, f"({ends}"] if bracket else [value]
    return [*([f"{before} ->"] if arrow else []), *parts, *verdict]


def _least(text: str) -> int:
    return max(map(len, _pieces(text)), default=0)


def _fold_row(row: Sequence[TableCell], widths: Sequence[int], markup: Markup) -> list[str]:
    """The lines of one row, indented below its name."""
    folded = [list(_fold(cell.text, width)) for cell, width in zip(row, widths, strict=True)]
    height = max(map(len, folded))
    cells = (
        [TableCell(part[i] if i < len(part) else "", cell.style) for cell, part in zip(row, folded, strict=True)]
        for i in range(height)
    )
    return [GAP + _line(line, widths, markup) for line in cells]


def _fold(text: str, width: int) -> Iterator[str]:
    line = ""
    for piece in _pieces(text):
        if line and len(line) + 1 + len(piece) > width:
            yield line
            line = piece
        else:
            line = f"{line} {piece}".strip()
    yield line
