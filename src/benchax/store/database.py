"""The store: measurements as rows of a database, SQLite by default, PostgreSQL by URL. The same code for both.

What is asked and written is here; opening, locking and what can go wrong with the place is in `sqlite_file.py` and
`server.py`; the tables are in `schema.py`.
"""

from __future__ import annotations

import dataclasses
import os
import struct
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, insert, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from benchax.codec import decode, decode_params, encode
from benchax.errors import StoreError, UsageError
from benchax.model import CaseId, Measurement, Program, Samples
from benchax.store.base import Row, check_place, commit_range, is_pattern, name_matcher, row_of
from benchax.store.schema import (
    SCALARS,
    SCHEMA,
    case_columns,
    cases,
    keep_program,
    measurements,
    migrate,
    program_from,
    read_version,
    samples,
    version,
)
from benchax.store.server import Server
from benchax.store.sqlite_file import SqliteFile, nothing_there

T = TypeVar("T")

FILE_NAME = "benchax.db"
SUFFIXES = (".db", ".sqlite")


class DatabaseLocation(Protocol):
    """Where the tables are: runs work in transactions and puts errors into words."""

    where: str

    def write(self, work: Callable[[Connection], T]) -> T: ...
    def read(self, work: Callable[[Connection], T]) -> T: ...
    def tables_mark(self, connection: Connection) -> int | None:
        """A number that changes with the tables, and costs far less than looking at them; None where there is none."""
        ...

    def held_open(self) -> AbstractContextManager[None]: ...


def open_store(where: str | os.PathLike[str] = ".benchmarks") -> DatabaseStore:
    """The store at `where`. Touches nothing yet: the first `append` makes what is missing.

    Args:
        where: a folder, which will hold benchax.db; a file that ends in .db or .sqlite; or the URL of a PostgreSQL
            database, postgresql://user@host/name.

    Raises:
        UsageError: a URL of another kind, or what cannot be the name of a folder.
        MissingPackage: a URL, and psycopg is not installed.
    """
    check_place(where)
    if "://" in str(where):
        return DatabaseStore(_server(str(where)))
    path = Path(where)
    is_file = path.suffix in SUFFIXES and not path.is_dir()
    return DatabaseStore(SqliteFile(path if is_file else path / FILE_NAME))


def _server(text: str) -> Server:
    expected = "a folder, a path that ends in .db or .sqlite, or postgresql://user@host/name"
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise UsageError(f"cannot read the URL of the store {text!r}", expected) from error
    if url.get_backend_name() != "postgresql":
        raise UsageError(f"cannot store rows in {url.render_as_string(hide_password=True)!r}", expected)
    # "postgresql" alone means another driver in SQLAlchemy 2.0 than in 2.1.
    return Server(url.set(drivername="postgresql+psycopg"))


class DatabaseStore:
    """A `Store` in a database; see `base.Store` for what its methods promise."""

    def __init__(self, place: DatabaseLocation) -> None:
        self.place = place
        self._current_mark: int | None = None
        """That of tables which are up to date."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where!r})"

    @property
    def where(self) -> str:
        return self.place.where

    def held_open(self) -> AbstractContextManager[None]:
        """To be entered by who appends many rows one after the other: each takes a third of the time."""
        return self.place.held_open()

    def append(self, m: Measurement) -> int:
        # All that can be done without the lock is done before it is taken.
        values = _columns(m)
        case = case_columns(m.case)
        arrays = [_arrays(s) | {"position": i} for i, s in enumerate(m.samples)]

        def work(connection: Connection) -> int:
            self._migrate(connection)
            case_id = case_id_of(connection, case)
            id: int = connection.execute(_INSERT_MEASUREMENT, values | {"case_id": case_id}).scalar_one()
            if arrays:
                connection.execute(insert(samples), [a | {"measurement_id": id} for a in arrays])
            if m.program is not None:
                keep_program(connection, m.program)
            return id

        return self.place.write(work)

    def find_program(self, source: str) -> Program | None:
        """The stored program that was exported from what has this digest; None where there is none, or no store."""
        try:
            # Without a look at the version, which takes longer than the rest: before 3 there is no such table.
            return self.place.read(lambda connection: program_from(connection, source))
        except StoreError:  # nothing was ever stored; or whoever stores the row hears what is wrong
            return None

    def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a transaction on tables that are up to date. For what else is kept beside the rows."""

        def migrated(connection: Connection) -> T:
            self._migrate(connection)
            return work(connection)

        return self.place.write(migrated)

    def read(self, work: Callable[[Connection], T], without: T, since: int = SCHEMA) -> T:
        """Runs `work` on one state of the tables; `without` where they are of a version before `since`."""

        def current(connection: Connection) -> T:
            return work(connection) if version(connection, self.where) >= since else without

        return self._read(current)

    def _migrate(self, connection: Connection) -> None:
        mark = self.place.tables_mark(connection)
        if mark is None or mark != self._current_mark or read_version(connection) != SCHEMA:
            migrate(connection, self.where)
            self._current_mark = self.place.tables_mark(connection)

    def query(
        self, *, case: str | None = None, commit: str | None = None, run: str | None = None, limit: int | None = None
    ) -> list[Measurement]:
        return self._read(lambda c: _measurements(c, _chosen(c, case, commit, run, limit)))

    def rows(
        self, *, case: str | None = None, commit: str | None = None, run: str | None = None, limit: int | None = None
    ) -> list[Row]:
        return self._read(lambda c: _rows(c, measurements.c.id.in_(_chosen(c, case, commit, run, limit))))

    def latest(self) -> list[Row]:
        # One look into the index (case_id, id) per case, however many rows it has. As an IN, not as a join with
        # `cases`: there SQLite 3.40 went through all measurements and asked of each whether it is the newest.
        newest = (
            select(func.max(measurements.c.id))
            .where(measurements.c.case_id == cases.c.id)
            .correlate(cases)
            .scalar_subquery()
        )
        return self._read(lambda c: _rows(c, measurements.c.id.in_(select(newest).select_from(cases))))

    def get(self, id: int) -> Measurement:
        found = self._read(lambda c: _measurements(c, select(measurements.c.id).where(measurements.c.id == id)))
        if not found:
            raise StoreError(f"there is no row {id} in {self.where}", "an id as `benchax list` shows it")
        return found[0]

    def _read(self, work: Callable[[Connection], T]) -> T:
        def checked(connection: Connection) -> T:
            if not version(connection, self.where):
                raise nothing_there(self.where)
            return work(connection)

        return self.place.read(checked)


# ---- writing ----------------------------------------------------------------------------------------------------

_INSERT_MEASUREMENT = insert(measurements).returning(measurements.c.id)
_GREATEST = 2**63 - 1


def _columns(m: Measurement) -> dict[str, Any]:
    """The scalars of a row, and its document without the readings, which are stored as arrays."""
    row = row_of(m)
    bare = tuple(dataclasses.replace(s, elapsed_s=(), disturbed=None) for s in m.samples)
    scalars = {c.name: _storable(getattr(row, c.name)) for c in SCALARS}
    return scalars | {"document": encode(dataclasses.replace(m, samples=bare))}


def _storable(value: Any) -> Any:
    """A compiler that says 2**64 - 1 bytes must not cost the row; the document keeps what it said."""
    return min(value, _GREATEST) if type(value) is int else value


def case_id_of(connection: Connection, case: dict[str, str]) -> int:
    """The id of a case, which is added if need be."""
    known = select(cases.c.id).where(cases.c.key == case["key"])
    found: int | None = connection.execute(known).scalar()
    if found is not None:
        return found
    # On a server another writer may be adding the same case right now.
    insert_new = import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert
    connection.execute(insert_new(cases).values(case).on_conflict_do_nothing())
    return connection.execute(known).scalar_one()


def _arrays(s: Samples) -> dict[str, bytes | None]:
    return {
        # In one byte order, so that a file can be copied to another machine.
        "elapsed_s": struct.pack(f"<{len(s.elapsed_s)}d", *s.elapsed_s),
        "disturbed": None if s.disturbed is None else bytes(s.disturbed),
    }


# ---- reading ----------------------------------------------------------------------------------------------------


def _chosen(
    connection: Connection, case: str | None, commit: str | None, run: str | None, limit: int | None
) -> Select[tuple[int]]:
    """The ids that a query asks for."""
    conditions: list[ColumnElement[bool]] = []
    if case is not None:
        conditions.append(_is_named(connection, case))
    if commit is not None:
        low, high = commit_range(commit)
        conditions += [measurements.c.commit >= low, measurements.c.commit < high]
    if run is not None:
        conditions.append(measurements.c.run_id == run)
    ids = select(measurements.c.id).where(*conditions)
    return ids if limit is None else ids.order_by(measurements.c.id.desc()).limit(limit)


def _is_named(connection: Connection, case: str) -> ColumnElement[bool]:
    if not is_pattern(case):
        return measurements.c.case_id.in_(select(cases.c.id).where(cases.c.name == case))
    # SQLite and PostgreSQL have no common pattern that heeds case and lets [ ] stand for themselves.
    matches = name_matcher(case)
    ids = [id for id, name in connection.execute(select(cases.c.id, cases.c.name)) if matches(name)]
    # Written into the text: as parameters, 32,766 would be the most that SQLite takes.
    return measurements.c.case_id.in_(bindparam("case_ids", ids, expanding=True, literal_execute=True))


def _rows(connection: Connection, condition: ColumnElement[bool]) -> list[Row]:
    statement = (
        select(measurements.c.id, cases.c.name, cases.c.params, cases.c.variant, cases.c.tag, *SCALARS)
        .join_from(cases, measurements, measurements.c.case_id == cases.c.id)
        .where(condition)
        .order_by(measurements.c.id)
    )
    return [_row(*record) for record in connection.execute(statement).all()]


def _row(id: int, name: str, params: str, variant: str, tag: str, *scalars: Any) -> Row:
    return Row(id, CaseId(name, decode_params(params), variant, tag), *scalars)


def _measurements(connection: Connection, chosen: Select[tuple[int]]) -> list[Measurement]:
    documents = connection.execute(
        select(measurements.c.id, measurements.c.document)
        .where(measurements.c.id.in_(chosen))
        .order_by(measurements.c.id)
    )
    readings: dict[int, list[Any]] = {}
    for array in connection.execute(
        select(samples)
        .where(samples.c.measurement_id.in_(chosen))
        .order_by(samples.c.measurement_id, samples.c.position)
    ):
        readings.setdefault(array.measurement_id, []).append(array)
    return [_whole(decode(document), readings.get(id, ())) for id, document in documents]


def _whole(bare: Measurement, arrays: Sequence[Any]) -> Measurement:
    """Puts the readings back to where `_columns` took them from."""
    return dataclasses.replace(
        bare,
        samples=tuple(
            dataclasses.replace(
                s,
                elapsed_s=struct.unpack(f"<{len(array.elapsed_s) // 8}d", array.elapsed_s),
                disturbed=None if array.disturbed is None else tuple(map(bool, array.disturbed)),
            )
            for s, array in zip(bare.samples, arrays, strict=True)
        ),
    )
