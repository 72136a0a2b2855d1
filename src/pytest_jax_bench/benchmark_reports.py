"""Reports of a session in the forms of pytest-benchmark: JSON files and tables.

Files (--benchmark-json, and those that --benchmark-save numbers and keeps) hold every reading, and what benchax knows
beyond pytest-benchmark (compile time, memory, the interval) in `extra_info`. `pytest-benchmark compare` and services
that read its JSON read them.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchax import codec, units
from benchax.errors import FormatError, UsageError
from benchax.grouping import group_by
from benchax.reporting.exports import entries, pytest_benchmark_document, stats
from benchax.whole_files import refuse_unwritable
from pytest_jax_bench import table
from pytest_jax_bench.benchmark_plugin import COLUMNS, TIMES
from pytest_jax_bench.options import BenchmarkSettings
from pytest_jax_bench.table import SummaryCell, SummaryTable

Record = Mapping[str, Any]


def make_document(records: Sequence[Record]) -> dict[str, Any]:
    """One entry for each measurement that has times, named as its test is. Tests that failed are left out."""
    found = [(record, _measurement(record)) for record in records]
    good = [(record, m) for record, m in found if m is not None and not _own(record).get("has_error")]
    exported = entries([m for _, m in good])
    timed = [(record, entry) for (record, _), entry in zip(good, exported, strict=True) if entry.samples]
    document = pytest_benchmark_document([entry for _, entry in timed])
    for (record, _), benchmark in zip(timed, document["benchmarks"], strict=True):
        benchmark |= _names(record) | {"extra_info": benchmark["extra_info"] | _own(record).get("extra_info", {})}
    return document


def _own(record: Record) -> Mapping[str, Any]:
    """Returns the options of the fixture `benchmark`; empty for other measurements."""
    return record.get("benchmark") or {}


def _measurement(record: Record) -> Any:
    """Chooses the measurement of the jitted function, else of the eager one: the last one of a row that has times."""
    documents = [codec.from_document(document) for document in record["measurements"]]
    return next((m for m in reversed(documents) if m.failure is None and m.headline is not None), None)


def _names(record: Record) -> dict[str, Any]:
    if own := _own(record):
        return {name: own[name] for name in ("group", "name", "fullname", "param", "params")}
    tag = "" if record["row"]["tag"] == "base" else f"#{record['row']['tag']}"
    return {"name": record["nodeid"].rpartition("::")[2] + tag, "fullname": record["nodeid"] + tag, "group": None}


def to_text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, default=lambda value: f"UNSERIALIZABLE[{value!r}]") + "\n"


def machine_folder(output_dir: Path) -> Path:
    """Where pytest-benchmark keeps the files of machines like this one."""
    version = ".".join(platform.python_version_tuple()[:2])
    machine = (platform.system(), platform.python_implementation(), version, platform.architecture()[0])
    return output_dir / "-".join(machine)


def save(output_dir: Path, wanted: BenchmarkSettings, document: Mapping[str, Any]) -> Path:
    """Writes the next file, 0001_NAME.json; another session's is never overwritten. Raises `UsageError` if the system
    does not permit it."""
    folder = machine_folder(output_dir)
    name = wanted.save or "_".join(str(document["commit_info"].get("id") or "unversioned").split())
    number = max((int(f.name[:4]) for f in folder.glob("[0-9][0-9][0-9][0-9]_*.json")), default=0)
    with refuse_unwritable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        while True:
            number += 1
            path = folder / f"{number:04}_{name}.json"
            try:
                with path.open("x", encoding="utf-8") as file:
                    file.write(to_text(document))
            except FileExistsError:  # another session was quicker
                continue
            return path


def find(output_dir: Path, number: str) -> Path:
    """The saved file whose name begins with `number`; the last one for an empty text.

    Raises:
        UsageError: there is no such file, or there are several.
    """
    if Path(number).is_file():
        return Path(number)
    folder = machine_folder(output_dir)
    files = sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.json"))
    found = [file for file in files if file.name.startswith(number)] if number else files[-1:]
    if len(found) != 1:
        listed = ", ".join(file.stem for file in files[-5:]) or "none so far; --benchmark-save NAME writes one"
        raise UsageError(f"--benchmark-compare={number!r} names {len(found)} files in {folder}", listed)
    return found[0]


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Statistics of each test by its full name.

    Raises:
        FormatError: it is not a file of pytest-benchmark, or one of a version with other fields.
    """
    expected = "a JSON file of pytest-benchmark 3 to 5, or of --benchmark-save"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        found = {each["fullname"]: dict(each["stats"]) for each in document["benchmarks"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FormatError(f"cannot read {path}: {type(error).__name__}: {error}", expected) from error
    for name, each in found.items():
        if missing := [key for key in ("min", "max", "mean", "median") if not isinstance(each.get(key), int | float)]:
            raise FormatError(f"{path} has no {missing[0]!r} of {name}", expected)
    return found


# The tables of a session by groups, in an order, with columns of pytest-benchmark: what --benchmark-group-by, -sort,
# -columns, -name, -time-unit and -compare ask for. Without columns they have those of `table.py`.
#
# All times of one table are in one unit, which its columns name, and are of all readings of a row, as there.


Saved = Mapping[str, Mapping[str, Any]]
"""Statistics by the full name of the test, out of a file."""


def group(records: Sequence[Record], wanted: BenchmarkSettings) -> list[tuple[str, list[Record]]]:
    """(title, records), the nameless group first; within each in the order that is asked for."""
    found = group_by(records, lambda r: " ".join(filter(None, map(_list_names(r).get, wanted.group_by))))
    return [(title, sort(found[title], wanted.sort)) for title in sorted(found)]


def _list_names(record: Record) -> dict[str, str]:
    """The names of a test by the options that ask for them."""
    own, full = _own(record), record["nodeid"]
    path, bracket, parameters = full.partition("[")
    function = path.rpartition("::")[2]
    name = function + bracket + parameters
    return {
        "group": own.get("group") or "",
        "func": function,
        "fullfunc": path,
        "param": own.get("param") or parameters.removesuffix("]"),
        **{f"param:{each}": f"{each}={value}" for each, value in (own.get("param_names") or {}).items()},
        **dict.fromkeys(("name", "normal"), name),
        **dict.fromkeys(("fullname", "long", "trial"), full),
        "short": name.removeprefix("test_"),
    }


def sort(records: Sequence[Record], by: str | None) -> list[Record]:
    """Rows without times last."""
    if by is None:
        return list(records)
    if by in ("name", "fullname"):
        return sorted(records, key=lambda r: _list_names(r)[by])
    return sorted(records, key=lambda r: statistics_of(r).get(by, float("inf")))


def statistics_of(record: Record) -> dict[str, Any]:
    """Returns statistics by the names of pytest-benchmark; empty if nothing was timed."""
    readings = record.get("readings")
    return stats(readings["times_s"]) | {"iterations": readings["iterations"]} if readings else {}


def tabulate(records: Sequence[Record], wanted: BenchmarkSettings, saved: Saved | None = None) -> SummaryTable:
    if not wanted.columns and not wanted.time_unit and saved is None:
        return table.tabulate_records(records, lambda record: _name(record, wanted))
    columns = wanted.columns or COLUMNS
    rows = [(_name(record, wanted), statistics_of(record), record) for record in records]
    unit = _unit([found for _, found, _ in rows], wanted.time_unit)
    heads = [f"{c} ({unit})" if c in TIMES else c for c in columns]
    cells: list[tuple[SummaryCell, ...]] = []
    for name, found, record in rows:
        before = (saved or {}).get(record["nodeid"])
        mark = "" if saved is None else " (now)"
        cells.append((SummaryCell(name + mark), *_cells(found, columns, unit), table.status_of(record)))
        if before is not None:
            cells.append((SummaryCell(f"{name} (saved)", "faint"), *_cells(before, columns, unit), SummaryCell("")))
    return SummaryTable(("Test", *heads, "Status"), tuple(cells)).without_empty_columns()


def _unit(found: Sequence[Mapping[str, Any]], asked: str | None) -> str:
    if asked not in (None, "auto"):
        return {"us": "µs"}.get(asked, asked)
    least = min((each["min"] for each in found if each and each["min"] > 0), default=1.0)
    return units.seconds_unit(least)


def _cells(found: Mapping[str, Any], columns: Sequence[str], unit: str) -> list[SummaryCell]:
    seconds = {c: found[c] / units.SECONDS[unit] for c in TIMES if found.get(c) is not None}
    numbers = {c: units.number(value) for c, value in (dict(found) | seconds).items() if c in (*seconds, "ops")}
    texts = {c: str(value) for c, value in found.items() if value is not None} | numbers
    return [SummaryCell(texts.get(column, "")) for column in columns]


def _name(record: Record, wanted: BenchmarkSettings) -> str:
    return table.truncate(_list_names(record)[wanted.name or "fullname"], float("inf"))
