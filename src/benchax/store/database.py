"""The store: measurements as rows of a database, SQLite by default, PostgreSQL by URL. The same code for both.

This module has the queries and the writes. `sqlite_file.py` and `server.py` open and lock the database, and handle its
errors. The tables are in `schema.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from benchax.codec import decode_params
from benchax.errors import StoreError, UsageError
from benchax.json_values import Mismatch
from benchax.model import CaseId, EarlierRuns, Measurement, Program
from benchax.store.base import Row, check_place, commit_range, file_at, is_pattern, name_matcher
from benchax.store.readings import DamagedRow, read_record
from benchax.store.records import StorableRow, insert_all
from benchax.store.schema import (
    SCALARS,
    SCHEMA,
    case_key,
    cases,
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

KEPT_RUNS = 30
"""A row knows at most this many earlier runs, the newest."""
LOOKED_AT = 20
"""This many of the newest rows of a case are searched for one of the same program."""


class DatabaseLocation(Protocol):
    """Where the tables are: runs work in transactions and puts errors into words."""

    where: str

    def write(self, work: Callable[[Connection], T]) -> T: ...
    def read(self, work: Callable[[Connection], T]) -> T: ...
    def tables_mark(self, connection: Connection) -> int | None:
        """A number that changes with the tables, and is much cheaper than reading them; None if there is no such
        number.
        """
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
    return DatabaseStore(SqliteFile(file_at(where)))


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
        """The mark of tables that are up to date."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where!r})"

    @property
    def where(self) -> str:
        return self.place.where

    def held_open(self) -> AbstractContextManager[None]:
        """Use this to append many rows one after the other: each then takes a third of the time."""
        return self.place.held_open()

    def append(self, m: Measurement) -> int:
        record = StorableRow(m)
        return self.write(record.insert)

    def append_all(self, rows: Sequence[Measurement]) -> list[int]:
        """All of them or none, in one transaction: a fraction of the time of as many `append`."""
        records = [StorableRow(m) for m in rows]
        return self.write(lambda connection: insert_all(connection, records))

    def find_program(self, source: str) -> Program | None:
        """Returns the stored program whose source has this digest; None if there is no such program, or no store."""
        try:
            # Without a look at the version, which takes longer than the rest: before 3 there is no such table.
            return self.place.read(lambda connection: program_from(connection, source))
        except StoreError:  # nothing was ever stored; or whoever stores the row hears what is wrong
            return None

    def find_earlier_runs(self, case: CaseId, source: str, fingerprint: str) -> EarlierRuns:
        """Finds what earlier runs of a program read: those that the newest row knows of, and that row itself.

        Args:
            source: digest of the program; a row of another one says nothing about it.
            fingerprint: of the environment.
        """
        try:
            newest = self.place.read(lambda connection: _newest_like(connection, case, source, fingerprint))
        except (StoreError, DamagedRow):  # there is no store yet, or storing the row will say what is wrong
            newest = None
        if newest is None:
            return EarlierRuns(source)
        medians = dict(newest.earlier_runs.medians_s)
        for timer in dict.fromkeys(each.timer for each in newest.samples):
            if (median_s := newest.summary(timer).median_s) > 0:
                # Four digits are enough, and a row holds up to 150 of these numbers.
                medians[timer] = (*medians.get(timer, ()), float(f"{median_s:.4g}"))[-KEPT_RUNS:]
        return EarlierRuns(source, medians)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a transaction on tables that are up to date. Use it for data other than rows."""

        def migrated(connection: Connection) -> T:
            self._migrate(connection)
            return work(connection)

        return self.place.write(migrated)

    def read(self, work: Callable[[Connection], T], without: T, since: int = SCHEMA) -> T:
        """Runs `work` on one state of the tables; `without` where they are of a version before `since`."""

        def current(connection: Connection) -> T:
            return work(connection) if version(connection, self.where) >= since else without

        return self._read(current)

    def migrate(self) -> tuple[int, int]:
        """Makes the tables, or brings them up to date: (their version before, 0 for none; now)."""

        def migrate_now(connection: Connection) -> int:
            before = version(connection, self.where)
            migrate(connection, self.where)
            return before

        return self.place.write(migrate_now), SCHEMA

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
        ids = select(newest).select_from(cases)

        def read_newest(connection: Connection) -> list[Row]:
            if connection.dialect.name != "postgresql":
                return _rows(connection, measurements.c.id.in_(ids))
            # As an array, which PostgreSQL 15 finds first and then looks each up; for an IN it read all measurements.
            return _rows(connection, measurements.c.id == func.any(func.array(ids.scalar_subquery())))

        return self._read(read_newest)

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
        # A row without its case is damaged, and is not to be passed over.
        .join_from(measurements, cases, measurements.c.case_id == cases.c.id, isouter=True)
        .where(condition)
        .order_by(measurements.c.id)
    )
    return [_row(*record) for record in connection.execute(statement).all()]


def _row(id: int, name: str | None, params: str, variant: str, tag: str, *scalars: Any) -> Row:
    if name is None:
        raise DamagedRow(f"row {id} is damaged: its case is missing")
    try:
        return Row(id, CaseId(name, decode_params(params), variant, tag), *scalars)
    except (ValueError, TypeError, AttributeError, Mismatch) as error:
        raise DamagedRow(f"row {id} is damaged: {error}") from error


def _newest_like(connection: Connection, case: CaseId, source: str, fingerprint: str) -> Measurement | None:
    """Returns the newest row of a case with readings of this program, among the last few; None if no row fits."""
    id = select(cases.c.id).where(cases.c.key == case_key(case)).scalar_subquery()
    newest = (
        select(measurements.c.id, measurements.c.document)
        .where(measurements.c.case_id == id, measurements.c.fingerprint == fingerprint, measurements.c.n > 0)
        .order_by(measurements.c.id.desc())
        .limit(LOOKED_AT)
        .subquery()
    )
    # The digest is 64 hexadecimal digits: found in the text, which is far faster than reading each document.
    chosen = select(newest.c.id).where(newest.c.document.contains(source)).order_by(newest.c.id.desc()).limit(1)
    return next(iter(_measurements(connection, chosen)), None)


def _measurements(connection: Connection, chosen: Select[tuple[int]]) -> list[Measurement]:
    documents = connection.execute(
        select(measurements.c.id, measurements.c.document)
        .where(measurements.c.id.in_(chosen))
        .order_by(measurements.c.id)
    )
    readings: dict[int, list[tuple[bytes, bytes | None]]] = {}
    for array in connection.execute(
        select(samples)
        .where(samples.c.measurement_id.in_(chosen))
        .order_by(samples.c.measurement_id, samples.c.position)
    ):
        readings.setdefault(array.measurement_id, []).append((array.elapsed_s, array.disturbed))
    return [read_record(id, document, readings.get(id, ())) for id, document in documents]
