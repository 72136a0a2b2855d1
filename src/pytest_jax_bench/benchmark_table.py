"""The tables of a session by groups, in an order, with columns of pytest-benchmark: what --benchmark-group-by, -sort,
-columns, -name, -time-unit and -compare ask for. Without columns they have those of `table.py`.

All times of one table are in one unit, which its columns name, and are of all readings of a row, as there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchax import units
from benchax.reporting.document import Table, TableCell, TableColumn
from benchax.reporting.exports.pytest_benchmark import stats
from pytest_jax_bench import table
from pytest_jax_bench.benchmark_options import COLUMNS, TIMES
from pytest_jax_bench.settings import BenchmarkSettings

Record = Mapping[str, Any]
Saved = Mapping[str, Mapping[str, Any]]
"""Statistics by the full name of the test, out of a file."""


def group(records: Sequence[Record], wanted: BenchmarkSettings) -> list[tuple[str, list[Record]]]:
    """(title, records), the nameless group first; within each in the order that is asked for."""
    found: dict[str, list[Record]] = {}
    for record in records:
        found.setdefault(" ".join(filter(None, (_part(record, by) for by in wanted.group_by))), []).append(record)
    return [(title, sort(found[title], wanted.sort)) for title in sorted(found)]


def _part(record: Record, by: str) -> str:
    own = record.get("benchmark") or {}
    full, parameters = record["nodeid"], own.get("param_names") or {}
    if by.startswith("param:"):
        name = by.removeprefix("param:")
        return f"{name}={parameters[name]}" if name in parameters else ""
    texts = {
        "group": own.get("group"),
        "name": _short(full),
        "fullname": full,
        "func": _short(full).partition("[")[0],
        "fullfunc": full.partition("[")[0],
        "param": own.get("param") or full.partition("[")[2].removesuffix("]"),
    }
    return texts[by] or ""


def _short(nodeid: str) -> str:
    path, bracket, parameters = nodeid.partition("[")
    return path.rpartition("::")[2] + bracket + parameters


def sort(records: Sequence[Record], by: str | None) -> list[Record]:
    """Rows without times last."""
    if by is None:
        return list(records)
    if by in ("name", "fullname"):
        return sorted(records, key=lambda r: _short(r["nodeid"]) if by == "name" else r["nodeid"])
    return sorted(records, key=lambda r: statistics_of(r).get(by, float("inf")))


def statistics_of(record: Record) -> dict[str, Any]:
    """Returns statistics by the names of pytest-benchmark; empty if nothing was timed."""
    readings = record.get("readings")
    return stats(readings["times_s"]) | {"iterations": readings["iterations"]} if readings else {}


def tabulate(records: Sequence[Record], wanted: BenchmarkSettings, saved: Saved | None = None) -> Table:
    if not wanted.columns and not wanted.time_unit and saved is None:
        return rename(table.tabulate_records(records), records, wanted.name)
    columns = wanted.columns or COLUMNS
    rows = [(_name(record, wanted.name), statistics_of(record), record) for record in records]
    unit = _unit([found for _, found, _ in rows], wanted.time_unit)
    heads = [TableColumn(f"{c} ({unit})" if c in TIMES else c, "words") for c in columns]
    cells: list[tuple[TableCell, ...]] = []
    for name, found, record in rows:
        before = (saved or {}).get(record["nodeid"])
        mark = "" if saved is None else " (now)"
        cells.append((TableCell(name + mark), *_cells(found, columns, unit), table.status_of(record)))
        if before is not None:
            cells.append((TableCell(f"{name} (saved)", "faint"), *_cells(before, columns, unit), TableCell("")))
    return Table(
        (TableColumn("Test", "names"), *heads, TableColumn("Status", "words")), tuple(cells)
    ).without_empty_columns()


def _unit(found: Sequence[Mapping[str, Any]], asked: str | None) -> str:
    if asked not in (None, "auto"):
        return {"us": "µs"}.get(asked, asked)
    least = min((each["min"] for each in found if each and each["min"] > 0), default=1.0)
    return units.seconds_unit(least)


def _cells(found: Mapping[str, Any], columns: Sequence[str], unit: str) -> list[TableCell]:
    return [TableCell(_text(column, found.get(column), unit)) for column in columns]


def _text(column: str, value: Any, unit: str) -> str:
    if value is None:
        return ""
    if column in TIMES:
        return units.number(value / units.SECONDS[unit])
    return units.number(value) if column == "ops" else str(value)


def rename(found: Table, records: Sequence[Record], how: str | None) -> Table:
    """The same table with the names of the tests as --benchmark-name says."""
    rows = zip(found.rows, records, strict=True)
    return Table(found.columns, tuple((TableCell(_name(record, how)), *row[1:]) for row, record in rows))


def _name(record: Record, how: str | None) -> str:
    full = table.truncate(record["nodeid"], float("inf"))
    if how == "normal":
        return _short(full)
    return _short(full).removeprefix("test_") if how == "short" else full
