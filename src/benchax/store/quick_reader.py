"""Reads the data of `benchax list`, `show` and `runs` from a healthy database, without SQLAlchemy.

SQLAlchemy takes 0.25 s to import, half of such a command. It only reads SQLite with the newest schema, in a folder with
write permission. In all other cases the answer is None: then `DatabaseStore` reads it, and reports the error.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

from benchax.codec import decode_params
from benchax.errors import FormatError
from benchax.model import CaseId, Measurement
from benchax.store.base import Row, StoredRun, run_of
from benchax.store.readings import DamagedRow, read_record

T = TypeVar("T")

SCHEMA = "3"
"""What `meta` has to say: that of `schema.py`."""
WAIT_S = 1.0
_COLUMNS = [f.name for f in fields(Row)][2:]
_OF_RUNS = ("started_at", "status", "commit", "is_dirty", "host", "backend", "device_kind", "jax")
_BOOLEANS = {"is_dirty"}


def newest_rows(path: Path, limit: int | None) -> list[Row] | None:
    """As `Store.rows`: at most `limit` of them, oldest first."""
    columns = ", ".join(f'm."{name}"' for name in _COLUMNS)
    statement = (
        f"SELECT m.id, c.name, c.params, c.variant, c.tag, {columns} FROM measurements m JOIN cases c "
        "ON c.id = m.case_id ORDER BY m.id DESC LIMIT ?"
    )
    return _read(path, lambda c: [_row(r) for r in c.execute(statement, (-1 if limit is None else limit,))][::-1])


def get(path: Path, id: int) -> Measurement | None:
    """As `Store.get`; None also if there is no such row."""

    def work(connection: sqlite3.Connection) -> Measurement | None:
        document = connection.execute("SELECT document FROM measurements WHERE id = ?", (id,)).fetchone()
        if document is None:
            return None
        readings = "SELECT elapsed_s, disturbed FROM samples WHERE measurement_id = ? ORDER BY position"
        return read_record(id, document[0], connection.execute(readings, (id,)).fetchall())

    return _read(path, work)


def newest_runs(path: Path, limit: int | None) -> tuple[list[StoredRun], dict[str, str]] | None:
    """As `runs.list_runs`, newest first, and the names that `baselines.list_baselines` has, by their runs."""
    newest = "SELECT run_id FROM measurements GROUP BY run_id ORDER BY max(id) DESC LIMIT ?"
    columns = ", ".join(f'm."{name}"' for name in _OF_RUNS)
    rows = (
        f"SELECT c.name, {columns} FROM measurements m JOIN cases c ON c.id = m.case_id WHERE m.run_id = ? "
        "ORDER BY m.id"
    )
    names = "SELECT run_id, name FROM baselines WHERE id IN (SELECT max(id) FROM baselines GROUP BY name) ORDER BY id"

    def work(connection: sqlite3.Connection) -> tuple[list[StoredRun], dict[str, str]]:
        runs = [
            run_of(_text(id), [_run_row(r) for r in connection.execute(rows, (id,))])
            for (id,) in connection.execute(newest, (-1 if limit is None else limit,)).fetchall()
        ]
        return runs, {_text(id): _text(name) for id, name in connection.execute(names) if id}

    return _read(path, work)


def _run_row(record: tuple[Any, ...]) -> tuple[Any, ...]:
    name, *scalars = record
    return (_text(name), *map(_scalar, _OF_RUNS, scalars))


def _read(path: Path, work: Callable[[sqlite3.Connection], T]) -> T | None:
    if not path.is_file() or not os.access(path.parent, os.W_OK):
        return None
    try:
        # Read and write: only such a connection leaves no -wal behind.
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", timeout=WAIT_S, uri=True)) as connection:
            connection.execute("BEGIN")
            found = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
            return work(connection) if found == (SCHEMA,) else None
    except (sqlite3.Error, FormatError, DamagedRow, ValueError):  # said by who reads it next
        return None


def _row(record: tuple[Any, ...]) -> Row:
    id, name, params, variant, tag, *scalars = record
    values = (_scalar(column, value) for column, value in zip(_COLUMNS, scalars, strict=True))
    return Row(id, CaseId(_text(name), decode_params(params), _text(variant), _text(tag)), *values)  # type: ignore[arg-type]


def _scalar(column: str, value: Any) -> Any:
    if isinstance(value, str):
        return _text(value)
    return bool(value) if column in _BOOLEANS and value is not None else value


def _text(value: str) -> str:
    """As `schema.AnyText` reads it."""
    return json.loads(value) if value.startswith('"') else value
