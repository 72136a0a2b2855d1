"""The table in the terminal: a row for each measurement, `old -> new ± half`, units chosen for each cell.

± is half of the 95 % interval of the median: the uncertainty of this run. If that is as much as the value, the table
shows the ends of the interval instead. Below six rounds there is no interval, and (low–high) is the least and the
greatest reading. A cell is green or red, and says faster or slower, only if the comparison supports that; gray means
that there's no verdict. `fit` fits the table to a terminal.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from benchax import units
from pytest_jax_bench.baseline import TIMES, number_of

Record = Mapping[str, Any]
Row = Mapping[str, Any]

TITLES = {
    "Compile": "compile",
    "Jit-Run": "jit",
    "Run": "eager",
    "Eager-Run": "eager",
    "Jit-Peak": "jit_peak_bytes",
    "Jit-Const": "jit_constants_bytes",
    "Eager-Peak": "eager_peak_bytes",
}
"""The metric of each column. A function that isn't jitted is a run of its own kind, unless the test measures it as
eager."""
LEAST_BYTES = {"jit_constants_bytes": 100_000}
"""Smaller constants are of no interest."""
LONGEST = 60
Style = Literal["", "good", "bad", "warning", "faint"]
STYLES: dict[str, Style] = {"faster": "good", "slower": "bad", "same": "", "unclear": "faint"}
"""By verdict. Faint, which is gray, means no verdict."""
LESS_OR_MORE = {"faster": "less", "slower": "more"}


class SummaryCell(NamedTuple):
    """A text and its style."""

    text: str
    style: Style = ""


class SummaryTable(NamedTuple):
    """Rows below their titles. Not the one of `benchax.reporting`: importing that takes long, and this is enough."""

    names: tuple[str, ...]
    rows: tuple[tuple[SummaryCell, ...], ...]

    def without_empty_columns(self) -> SummaryTable:
        kept = [i for i in range(len(self.names)) if any(row[i].text for row in self.rows)]
        return SummaryTable(tuple(self.names[i] for i in kept), tuple(tuple(row[i] for i in kept) for row in self.rows))


def tabulate_records(
    records: Sequence[Record], name: Callable[[Record], str] = lambda record: record["nodeid"]
) -> SummaryTable:
    """A row for each record, without the columns that no record fills."""
    names = ("Test", "C.Run", "Tag", *TITLES, "Status")
    return SummaryTable(names, tuple(_list_cells(record, name(record)) for record in records)).without_empty_columns()


def _list_cells(record: Record, name: str) -> tuple[SummaryCell, ...]:
    new, old = record["row"], record["reference"]
    other = "Eager-Run" if record.get("is_run") else "Run"
    run = str(new["commit_run"])
    if old is not None:
        is_same = old["commit"].removesuffix("+") == new["commit"].removesuffix("+")
        run = f"{'' if is_same else old['commit'] + ':'}{old['commit_run']}->{run}"
    return (
        SummaryCell(truncate(name, math.inf)),
        SummaryCell(run),
        SummaryCell(truncate(new["tag"], LONGEST)),
        *(SummaryCell("") if title == other else _number(record, metric) for title, metric in TITLES.items()),
        status_of(record),
    )


def truncate(text: str, longest: float) -> str:
    """One line, of printable characters."""
    one_line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return one_line if len(one_line) <= longest else one_line[: int(longest) - 1] + "…"


def _number(record: Record, metric: str) -> SummaryCell:
    new, old = _value(record["row"], metric), _value(record["reference"], metric)
    if new is None or max(new, old or 0) < LEAST_BYTES.get(metric, 0):
        return SummaryCell("")
    is_time = metric in (*TIMES, "compile")
    text = (
        _time(new, old, _spread(record, metric)) if is_time else _size(new, old, record.get("ranges", {}).get(metric))
    )
    verdict = "same" if old is None else record["verdicts"][metric][0]
    if verdict in ("same", "unclear"):
        return SummaryCell(text, STYLES[verdict])
    if not is_time and " -> " not in text:  # a difference that isn't seen is none
        return SummaryCell(text)
    # Bytes are less or more, not faster or slower.
    change = record.get("changes", {}).get(metric)
    words = (text, change, verdict if is_time else LESS_OR_MORE[verdict])
    return SummaryCell(" ".join(filter(None, words)), STYLES[verdict])


def count_gray(records: Sequence[Record]) -> int:
    """How many cells are gray."""
    return sum(cell.style == "faint" for row in tabulate_records(records).rows for cell in row)


def _value(row: Row | None, metric: str) -> float | None:
    value = number_of(row, metric) if row is not None else -1
    return value if value >= 0 else None  # neither -1 nor NaN


def _spread(record: Record, metric: str) -> tuple[float, float] | None:
    """The interval of the median in milliseconds; below six rounds the least and the greatest reading."""
    if metric not in TIMES:
        return None
    low, high = record["row"][f"{metric}_low_ms"], record["row"][f"{metric}_high_ms"]
    if math.isfinite(low) and math.isfinite(high):
        return low, high
    return record.get("ranges", {}).get(metric)


def has_ranges(records: Sequence[Record]) -> bool:
    """Does a cell show (low–high) of so few rounds that there is no interval?"""
    return any(
        record.get("ranges", {}).get(kind) and _value(record["row"], kind) is not None
        for record in records
        for kind in TIMES
    )


def _time(new: float, old: float | None, spread: Sequence[float] | None) -> str:
    """1.08 -> 1.11 ± 0.02 ms, or 1.11 (0.41–5.02) ms; all in the unit of the greater value."""
    unit = units.seconds_unit(max(new, old or 0) / 1e3)
    scale = units.SECONDS[unit] * 1e3
    before = f"{units.number(old / scale)} -> " if old is not None else ""
    return f"{before}{units.number(new / scale)}{_spread_text(new, spread, scale)} {unit}"


def _spread_text(value: float, spread: Sequence[float] | None, scale: float) -> str:
    if spread is None or spread[0] == spread[1]:
        return ""
    half = (spread[1] - spread[0]) / 2
    # Of few readings, which are a list, the ends are what is known; and nothing takes "829 ± 5627" for 829 or less.
    if isinstance(spread, tuple) and half < value:
        return f" ± {units.number(half / scale, 2)}"
    return f" ({units.number(spread[0] / scale)}–{units.number(spread[1] / scale)})"


def _size(new: float, old: float | None, ends: Sequence[float] | None = None) -> str:
    """24.1 MiB -> 32.2 MiB; equal sizes once; 5.03 MiB–7.00 MiB where it differs from call to call."""
    text = f"{units.size(ends[0])}–{units.size(ends[1])}" if ends else units.size(new)
    return text if old is None or units.size(old) == text else f"{units.size(old)} -> {text}"


DOUBTS: dict[str, tuple[str, Style]] = {
    "wrong-result": ("wrong result", "bad"),
    "state-dropped": ("state dropped", "bad"),
    "recompiled": ("compiled while timed", "warning"),
    "impure": ("impure", "warning"),
    "kept-program": ("nothing compiled", "warning"),
}
"""By the code of a remark: the text in the last column of a row whose numbers the remark is about. Red: a check
failed."""
SEE_BELOW: tuple[str, Style] = ("see below", "warning")


def status_of(record: Record) -> SummaryCell:
    row = record["row"]
    if row["status"] != "ok":
        return SummaryCell(f"{row['status']} in {row['message'].partition(':')[0]}", "bad")
    codes = record.get("codes", ())
    words = [word for code, word in DOUBTS.items() if code in codes]
    # A code that is not listed is one of a newer rule: its message stands below the table.
    words = words or ([SEE_BELOW] if row["message"] else [])
    return SummaryCell(", ".join(text for text, _ in words), words[0][1]) if words else SummaryCell("")


# Fits the table to a terminal: a row is one line if it fits, else its name is above its values.
#
# Names, values, and units stay whole. If a line is too long, the blanks inside values go first, then tags without
# information. A row that's still too long continues on another line. Colours have no width, and are put on last.


GAP = "  "
VERDICTS = ("slower", "faster", "same", "unclear")
USUAL = {"Tag": "base"}
"""The reason for which a column can be left out, by its name."""
Markup = Callable[[str, Style], str]


def fit(table: SummaryTable, width: int | None, markup: Markup = lambda text, style: text) -> list[str]:
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


def _forms(table: SummaryTable) -> Iterator[list[tuple[SummaryCell, ...]]]:
    """The rows with their header: as they are, with shorter values, and without usual columns."""
    rows = [tuple(SummaryCell(name) for name in table.names), *table.rows]
    yield rows
    rows = [tuple(SummaryCell(c.text.replace(" -> ", "->").replace(" ± ", "±"), c.style) for c in row) for row in rows]
    yield rows
    columns = zip(*table.rows, strict=True)
    kept = [i for i, cells in enumerate(columns) if {cell.text for cell in cells} != {USUAL.get(table.names[i])}]
    yield [tuple(row[i] for i in kept) for row in rows]


def _widths(rows: Sequence[Sequence[SummaryCell]]) -> list[int]:
    return [max(len(cell.text) for cell in column) for column in zip(*rows, strict=True)]


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + len(GAP) * (len(widths) - 1)


def _line(row: Sequence[SummaryCell], widths: Sequence[int], markup: Markup) -> str:
    parts = [markup(c.text, c.style) + " " * (w - len(c.text)) for c, w in zip(row, widths, strict=True)]
    return GAP.join(parts).rstrip()


def _parts(widths: Sequence[int], width: int) -> Iterator[slice]:
    """The columns of each line."""
    start = 0
    for end in range(1, len(widths) + 1):
        if end == len(widths) or _total(widths[start : end + 1]) > width:
            yield slice(start, end)
            start = end
