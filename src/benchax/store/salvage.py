"""Saves what a damaged database file still holds: every row of which all parts can be read, under its old id.

The records come from `pages.py`, which cannot tell what they are: a row counts only if its document is whole and fits
its readings, a program only if it has the digest that it is stored under.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import sqlite

from benchax.codec import NewerFormat, decode_comparison
from benchax.errors import FormatError
from benchax.model import Program
from benchax.store.pages import PageFile, Value
from benchax.store.readings import DamagedRow, read_record
from benchax.store.records import StorableRow, case_id_of
from benchax.store.schema import (
    AnyText,
    baselines,
    case_columns,
    comparisons,
    keep_program,
    measurements,
    migrate,
)
from benchax.units import plural

Array = tuple[bytes, bytes | None]
_MEASUREMENT_COLUMNS = len(measurements.columns)


@dataclass(frozen=True)
class Salvaged:
    """How much was saved."""

    rows: int
    least: int
    """So many rows there were, at least."""
    others: int = 0
    """Baselines and comparisons."""

    def __bool__(self) -> bool:
        return bool(self.rows or self.others)

    def __str__(self) -> str:
        lost = self.least - self.rows
        if not self.least:
            return "nothing of ours in it could be read"
        if not lost:
            return f"all {plural(self.rows, 'row')} that were found could be read"
        return f"{self.rows} of at least {plural(self.least, 'row')} could be read"


def salvage(path: Path, connection: Connection) -> Salvaged:
    """Writes what can be read of the file at `path` into a new database. Changes nothing at `path`.

    Raises:
        OSError: the file cannot be read.
    """
    migrate(connection, str(path))
    found = _RecordSorter(connection)
    with PageFile(path) as pages:
        for id, values in pages.records():
            found.take(id, values)
    rows = sum(map(found.restore_row, sorted(found.documents)))
    # Ids begin at 1, and no row is ever removed.
    return Salvaged(rows, max([0, *found.documents, *found.arrays]), found.others)


class _RecordSorter:
    """What lies in the pages. The parts of a row are collected; everything else goes into the new database at once."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.documents = dict[int, str]()
        self.arrays = defaultdict[int, dict[int, Array]](dict)
        self.others = 0

    def take(self, id: int, values: tuple[Value, ...]) -> None:
        """A record, whichever of our tables it is of; the columns and their types tell."""
        match values:
            case (int(row), int(position), bytes(elapsed_s), bytes() | None as disturbed):
                self.arrays[row][position] = (elapsed_s, disturbed)
            case (None, *_, str(document)) if len(values) == _MEASUREMENT_COLUMNS:
                self.documents[id] = document
            case (None, int(), str(), str(), str(document)):
                self._take_comparison(id, document)
            case (None, str(name), str(run_id), str(set_at)):
                self._add(baselines, id, {"name": _text(name), "run_id": _text(run_id), "set_at": set_at})
            case (str(sha256), bytes(content)) if hashlib.sha256(content).hexdigest() == sha256:
                keep_program(self.connection, Program(sha256, len(content), content))
            case _:
                pass

    def _take_comparison(self, id: int, document: str) -> None:
        try:
            c = decode_comparison(document)
        except FormatError:  # damaged, or of a newer benchax: it stays in the old file
            return
        case_id = case_id_of(self.connection, case_columns(c.case))
        values = {"case_id": case_id, "metric": c.metric, "baseline": c.baseline.label, "document": document}
        self._add(comparisons, id, values)

    def _add(self, table: Table, id: int, values: dict[str, Any]) -> None:
        statement = sqlite.insert(table).values(values | {"id": id}).on_conflict_do_nothing()
        self.others += self.connection.execute(statement).rowcount

    def restore_row(self, id: int) -> bool:
        """Stores a row again; False where a part of it is missing."""
        arrays = self.arrays[id]
        try:
            m = read_record(id, self.documents[id], [arrays[position] for position in sorted(arrays)])
        except (DamagedRow, NewerFormat):
            return False
        StorableRow(m).insert(self.connection, id)
        return True


def _text(stored: str) -> str:
    return AnyText().process_result_value(stored, None) or ""
