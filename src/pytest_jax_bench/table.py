"""The table in the terminal: one line for each measurement, `old->new+-half`, units chosen for each cell.

+- is half of the 95 % interval of the median: what is not known about this run. What another run may differ by is in
the verdict: a cell is coloured, and says faster or slower, only where the comparison supports it; where it cannot
tell, it says "unclear".
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from benchax import units
from benchax.reporting.comparisons import COUNTED
from benchax.reporting.document import Style, Table, TableCell, TableColumn
from pytest_jax_bench.baseline import TIMES, number_of

Record = Mapping[str, Any]

TITLES = {
    "compile": "Compile",
    "jit": "Jit-Run",
    "eager": "Eager-Run",
    "jit_peak_bytes": "Jit-Peak",
    "jit_constants_bytes": "Jit-Const",
    "eager_peak_bytes": "Eager-Peak",
}
LEAST_BYTES = {"jit_constants_bytes": 100_000}
"""Smaller constants are of no interest."""
LONGEST = 60
STYLES: dict[str, Style] = {"faster": "good", "slower": "bad", "same": "faint", "unclear": "faint"}
"""By verdict."""
COLUMNS = (
    TableColumn("Test", "names"),
    TableColumn("C.Run", "words"),
    TableColumn("Tag", "words"),
    *(TableColumn(title, "words") for title in TITLES.values()),
    TableColumn("Status", "words"),
)
"""None are numbers: what is compared stands beside them."""


def tabulate_records(records: Sequence[Record]) -> Table:
    """A row for each; columns that nobody fills are left out."""
    return Table(COLUMNS, tuple(map(_list_cells, records))).without_empty_columns()


def _list_cells(record: Record) -> tuple[TableCell, ...]:
    return (
        TableCell(truncate(record["nodeid"], math.inf)),
        TableCell(_commit_run(record)),
        TableCell(truncate(record["row"]["tag"], LONGEST)),
        *(_number(record, metric) for metric in TITLES),
        _status(record),
    )


def truncate(text: str, longest: float) -> str:
    """One line, of printable characters."""
    one_line = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
    return one_line if len(one_line) <= longest else one_line[: int(longest) - 1] + "…"


def _commit_run(record: Record) -> str:
    new, old = record["row"], record["reference"]
    if old is None:
        return str(new["commit_run"])
    is_same = old["commit"].removesuffix("+") == new["commit"].removesuffix("+")
    return f"{'' if is_same else old['commit'] + ':'}{old['commit_run']}->{new['commit_run']}"


def _number(record: Record, metric: str) -> TableCell:
    new, old = _value(record["row"], metric), _value(record["reference"], metric)
    if new is None:
        return TableCell("")
    if max(new, old or 0) < LEAST_BYTES.get(metric, 0):
        return TableCell("")
    text = _time(new, old, _half(record["row"], metric)) if metric in (*TIMES, "compile") else _size(new, old)
    if old is None:
        return TableCell(text)
    verdict = record["verdicts"][metric][0]
    # Bytes are less or more, not faster or slower.
    word = "" if verdict == "same" else f" {verdict if metric in (*TIMES, 'compile') else COUNTED[verdict]}"
    return TableCell(text + word, STYLES[verdict])


def _value(row: Record | None, metric: str) -> float | None:
    value = number_of(row, metric) if row is not None else -1
    return value if value >= 0 else None  # neither -1 nor NaN


def _half(row: Record, metric: str) -> float | None:
    """Half of the 95 % interval of the median, in milliseconds; None below six rounds."""
    if metric not in TIMES:
        return None
    half = (row[f"{metric}_high_ms"] - row[f"{metric}_low_ms"]) / 2
    return half if math.isfinite(half) else None


def _time(new: float, old: float | None, half: float | None) -> str:
    """1.08->1.11+-0.02 ms, all in the unit of the greater one."""
    unit = units.seconds_unit(max(new, old or 0) / 1e3)
    scale = units.SECONDS[unit] * 1e3
    before = f"{units.number(old / scale)}->" if old is not None else ""
    after = f"+-{units.number(half / scale, 2)}" if half is not None else ""
    return f"{before}{units.number(new / scale)}{after} {unit}"


def _size(new: float, old: float | None) -> str:
    """24.1 MiB->32.2 MiB; equal sizes once."""
    return units.size(new) if old is None or old == new else f"{units.size(old)}->{units.size(new)}"


def _status(record: Record) -> TableCell:
    row = record["row"]
    if row["status"] == "ok":
        return TableCell("wrong result", "bad") if row["message"] else TableCell("")
    stage = row["message"].partition(":")[0]
    return TableCell(f"{row['status']} in {stage}", "bad")
