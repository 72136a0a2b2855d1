"""The store: measurements as rows of a database, SQLite by default, PostgreSQL by URL. The same code for both.

This module has the queries and the writes. `sqlite_file.py` opens and locks the file, and handles its errors; `Server`
does so for PostgreSQL. The tables are in `schema.py`.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from fnmatch import fnmatchcase
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from benchax.errors import StoreError, UsageError, require
from benchax.grouping import group_by
from benchax.model import CaseId, EarlierRuns, Measurement, Program
from benchax.printable import can_name_a_file
from benchax.store.schema import (
    SCHEMA,
    Connection,
    DamagedRow,
    Row,
    StorableRow,
    case_key,
    limited,
    migrate,
    program_from,
    read_record,
    read_rows,
    version,
)
from benchax.store.sqlite_file import SqliteFile, nothing_there

T = TypeVar("T")

KEPT_RUNS = 30
"""A row knows at most this many earlier runs, the newest."""
LOOKED_AT = 20
"""This many of the newest rows of a case are searched for one of the same program."""


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
    return DatabaseStore(SqliteFile(path if path.suffix in SUFFIXES and not path.is_dir() else path / FILE_NAME))


def _server(text: str) -> Server:
    expected = "a folder, a path that ends in .db or .sqlite, or postgresql://user@host/name"
    if not re.match(r"[A-Za-z][\w+.-]*://", text):
        raise UsageError(f"cannot read the URL of the store {text!r}", expected)
    scheme, rest = text.split("://", 1)
    # "postgresql+psycopg" was written by earlier versions.
    if scheme.partition("+")[0] != "postgresql":
        raise UsageError(f"cannot store rows in {hide_password(text)!r}", expected)
    return Server(f"postgresql://{rest}")


class DatabaseStore:
    """Where measurements are kept. One instance may be used by many threads and, after a fork, by the children.

    A store only grows: rows are appended, read, and never changed. A row consists of its document (`codec.py`) and its
    arrays of readings. The scalars are derived from it once, when it is written. So queries over a million rows need no
    documents.
    """

    def __init__(self, place: SqliteFile | Server) -> None:
        self.place = place

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where!r})"

    @property
    def where(self) -> str:
        """The place for people to read: a path, or a URL without its password."""
        return self.place.where

    def held_open(self) -> AbstractContextManager[None]:
        """Use this to append many rows one after the other: each then takes a third of the time."""
        return self.place.held_open()

    def append(self, m: Measurement) -> int:
        """Stores one measurement and returns its id.

        When this returns, the row is durable: no kill, crash or power cut loses it. When it raises, nothing was
        stored and the caller still holds the row. Readings are stored as float64.

        Raises:
            StoreError: the place cannot be written.
        """
        record = StorableRow(m)
        return self.write(record.insert)

    def append_all(self, rows: Sequence[Measurement]) -> list[int]:
        """As `append`, all of them or none, in one transaction: a fraction of the time of one by one.

        Raises:
            StoreError: the place cannot be written; none was stored.
        """
        records = [StorableRow(m) for m in rows]
        return self.write(lambda connection: [record.insert(connection) for record in records])

    def find_program(self, source: str) -> Program | None:
        """Returns the stored program whose source has this digest; None if there is no such program, or no store."""
        try:
            # Skip the version check, which takes longer than the rest: before version 3 there is no such table.
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
            migrate(connection, self.where)
            return work(connection)

        return self.place.write(migrated)

    def read(self, work: Callable[[Connection], T], without: T, since: int = 2) -> T:
        """Runs `work` on one state of the tables; `without` where they are of a version before `since`. Version 1 has
        rows, and version 2 the rest that is read here.

        Raises:
            StoreError: nothing was ever stored there, or the store cannot be read.
        """

        def current(connection: Connection) -> T:
            found = version(connection, self.where)
            if not found:
                raise nothing_there(self.where)
            return work(connection) if found >= since else without

        return self.place.read(current)

    def migrate(self) -> tuple[int, int]:
        """Makes the tables, or brings them up to date: (their version before, 0 for none; now)."""

        return self.place.write(lambda connection: migrate(connection, self.where)), SCHEMA

    def query(
        self, *, case: str | None = None, commit: str | None = None, run: str | None = None, limit: int | None = None
    ) -> list[Measurement]:
        """Measurements, oldest first.

        Args:
            case: the name of a case, or a pattern when it holds * (any text) or ? (any character).
            commit: a commit, in full or its first digits.
            run: a run_id.
            limit: the maximum number of rows; the newest ones.

        Raises:
            StoreError: nothing was ever stored there, or the store cannot be read.
        """
        return self.read(lambda c: _measurements(c, _chosen(c, case, commit, run, limit)), [], since=1)

    def rows(
        self, *, case: str | None = None, commit: str | None = None, run: str | None = None, limit: int | None = None
    ) -> list[Row]:
        """Returns the rows of `query`, without documents and readings, in a third of the time or less."""

        def work(connection: Connection) -> list[Row]:
            ids, values = _chosen(connection, case, commit, run, limit)
            return read_rows(connection, f"m.id IN ({ids})", values)

        return self.read(work, [], since=1)

    def get(self, id: int) -> Measurement:
        """One measurement by the id that `append` gave.

        Raises:
            StoreError: there is no such row.
        """
        found = self.read(lambda c: _measurements(c, ("?", [id])), [], since=1)
        if not found:
            raise StoreError(f"there is no row {id} in {self.where}", "an id as `benchax list` shows it")
        return found[0]


# ---- reading ----------------------------------------------------------------------------------------------------


Chosen = tuple[str, list[Any]]
"""A statement that gives ids, or an id; and its values."""


def _chosen(connection: Connection, case: str | None, commit: str | None, run: str | None, limit: int | None) -> Chosen:
    """The ids that a query asks for."""
    conditions = dict[str, Sequence[Any]]()  # with their values
    if case is not None and is_pattern(case):
        # SQLite and PostgreSQL have no common pattern syntax that respects case and treats [ ] literally.
        matches = name_matcher(case)
        ids = [str(id) for id, name in connection.execute("SELECT id, name FROM cases") if matches(name)]
        # Written into the text, because SQLite takes at most 32,766 parameters.
        conditions[f"case_id IN ({', '.join(ids) or 'NULL'})"] = ()
    elif case is not None:
        conditions["case_id IN (SELECT id FROM cases WHERE name = ?)"] = [case]
    if commit is not None:
        conditions['"commit" >= ? AND "commit" < ?'] = commit_range(commit)
    if run is not None:
        conditions["run_id = ?"] = [run]
    where = " AND ".join(conditions) or "1 = 1"
    newest = "" if limit is None else f" ORDER BY id DESC{limited(limit)}"
    return f"SELECT id FROM measurements WHERE {where}{newest}", list(chain(*conditions.values()))


def _newest_like(connection: Connection, case: CaseId, source: str, fingerprint: str) -> Measurement | None:
    """Returns the newest row of a case with readings of this program, among the last few; None if no row fits."""
    newest = (
        'SELECT id, document FROM measurements WHERE case_id = (SELECT id FROM cases WHERE "key" = ?) '
        f"AND fingerprint = ? AND n > 0 ORDER BY id DESC{limited(LOOKED_AT)}"
    )
    # The digest has 64 hexadecimal digits. Searching the text is far faster than parsing each document.
    chosen = f"SELECT newest.id FROM ({newest}) newest WHERE newest.document LIKE ? ORDER BY newest.id DESC LIMIT 1"
    found = _measurements(connection, (chosen, [case_key(case), fingerprint, f"%{source}%"]))
    return next(iter(found), None)


def _measurements(connection: Connection, chosen: Chosen) -> list[Measurement]:
    ids, values = chosen
    documents = connection.execute(f"SELECT id, document FROM measurements WHERE id IN ({ids}) ORDER BY id", values)
    arrays = connection.execute(
        "SELECT measurement_id, elapsed_s, disturbed FROM samples "
        f"WHERE measurement_id IN ({ids}) ORDER BY measurement_id, position",
        values,
    )
    readings = group_by(arrays, lambda array: array[0])
    return [read_record(id, document, [array[1:] for array in readings.get(id, ())]) for id, document in documents]


# ---- places and names ------------------------------------------------------------------------------------------------


def check_place(where: object) -> None:
    """Raises UsageError where `where` can be neither a path nor a URL."""
    text = str(cast("object", where)) if isinstance(where, str | os.PathLike) else ""
    if not text or not can_name_a_file(text):
        raise UsageError(
            f"rows cannot be in {where!r}",
            "a folder, a path that ends in .db, .sqlite, .jsonl or .json, or the URL of a database",
        )


FILE_NAME = "benchax.db"
SUFFIXES = (".db", ".sqlite")


def is_pattern(case: str) -> bool:
    return "*" in case or "?" in case


def name_matcher(case: str) -> Callable[[str], bool]:
    """Does a name answer to `case`, a name or a pattern? [ ] stand for themselves: names of tests are full of them."""
    if not is_pattern(case):
        return case.__eq__
    pattern = case.replace("[", "[[]")
    return lambda name: fnmatchcase(name, pattern)


def commit_range(commit: str) -> tuple[str, str]:
    """(low, high): the commits that begin with the digits `commit` are low <= c < high, which an index can answer."""
    return commit, commit + "g"  # no hexadecimal digit reaches "g"


# ---- a PostgreSQL server ---------------------------------------------------------------------------------------------
#
# Keeps a team's store on a PostgreSQL server, which handles concurrency and durability.


NOT_PERMITTED = "42501"
"""SQLSTATE insufficient_privilege."""
MIGRATE = "tables are made and updated by their owner: benchax migrate --store URL; roles are in docs/how-to/team.md"
CONNECT_TIMEOUT_S = 10
"""A host that answers nothing would be waited for for minutes."""


class Server:
    """A database on a server. A connection lives for one transaction, so that none is inherited over a fork.

    Raises:
        MissingPackage: psycopg is not installed.
    """

    def __init__(self, url: str) -> None:
        self._psycopg = require("psycopg", doing="storing rows in PostgreSQL")
        self.url = url
        self._held: dict[tuple[int, int], Any] | None = None
        """By process and thread: a fork must not speak on the connection of its parent."""
        self.where = hide_password(url)

    def __reduce__(self) -> tuple[type[Server], tuple[str]]:
        """Connections do not travel to another process."""
        return Server, (self.url,)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a transaction and commits. Raises StoreError."""
        return self._transaction(work, "READ_COMMITTED", "write")

    def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` on one consistent state of the database. Raises StoreError."""
        return self._transaction(work, "REPEATABLE_READ", "read")

    @contextmanager
    def held_open(self) -> Generator[None, None, None]:
        """A connection serves all transactions of a thread inside the block; a lost connection is made again."""
        if self._held is not None:
            yield
            return
        self._held = {}
        try:
            yield
        finally:
            held, self._held = self._held, None
            for (process, _), connection in held.items():
                if process == os.getpid():
                    connection.close()

    def _transaction(self, work: Callable[[Connection], T], isolation: str, verb: str) -> T:
        try:
            with self._connection() as connection:
                connection.isolation_level = self._psycopg.IsolationLevel[isolation]
                with connection.transaction():
                    return work(Connection(connection, "postgresql"))
        except self._psycopg.Error as error:
            raise StoreError(
                f"cannot {verb} {self.where}: {error}",
                "a PostgreSQL server that can be reached, and a role that may do that",
                MIGRATE if error.sqlstate == NOT_PERMITTED else "",
            ) from error

    @contextmanager
    def _connection(self) -> Generator[Any, None, None]:
        held = self._held
        if held is None:
            with closing(self._connect()) as connection:
                yield connection
            return
        here = os.getpid(), threading.get_ident()
        if here not in held or not self._is_alive(held[here]):
            held[here] = self._connect()
        yield held[here]

    def _connect(self) -> Any:
        given = self._psycopg.conninfo.conninfo_to_dict(self.url)
        return self._psycopg.connect(**{"connect_timeout": CONNECT_TIMEOUT_S} | given, autocommit=True)

    def _is_alive(self, connection: Any) -> bool:
        try:
            connection.execute("SELECT 1")
        except self._psycopg.Error:
            return False
        return True


def hide_password(url: str) -> str:
    """Returns the URL as people may see it."""
    password = urlsplit(url).password
    return url.replace(f":{password}@", ":***@", 1) if password else url
