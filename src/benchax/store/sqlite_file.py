"""Handles one SQLite file that many processes write: opening, one writer at a time, damage, and readable errors.

A connection lives for one transaction. So a fork never inherits a connection, which would corrupt the file. At rest
there is one file without a -wal, which can be copied. A transaction costs about 1 ms per row, for three waits for the
disk. Callers that write many rows hold the file open (`held_open`).

Writers queue at a separate lock file, `<file>-lock`, and not only at SQLite's locks, for two reasons. First, a process
that moves a damaged file away knows that no other process writes to it. Second, SQLite 3.7.0 to 3.51.2 can corrupt a
database in WAL mode when two connections write and checkpoint in the same instant (sqlite.org/wal.html#walresetbug).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import warnings
from collections.abc import Callable, Generator, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from benchax.codec import NewerFormat, decode_comparison
from benchax.errors import FormatError, StoreError
from benchax.grouping import group_by
from benchax.model import Program
from benchax.store.schema import (
    UNLESS_THERE,
    Connection,
    DamagedRow,
    StorableRow,
    comparison_columns,
    decode_text,
    keep_program,
    migrate,
    read_record,
)
from benchax.units import plural
from benchax.whole_files import WAIT_S, hide_from_git, only_writer

T = TypeVar("T")

# FULL: every commit waits for the disk, so even a power cut loses nothing (NORMAL would lose the last rows; `kill -9`
# loses none with either). Opening, writing one row with 8 kB of readings, and closing, with bare sqlite3 on ext4 on a
# virtual disk, median of 200: 1.20 ms with FULL, 1.19 ms with NORMAL. Only a gain of more than 5 ms would justify
# NORMAL.
_CHECKED = "PRAGMA cell_size_check=ON"
"""A damaged page is noticed when it is read, and not when its nonsense is."""
_PRAGMAS = ("PRAGMA synchronous=FULL", _CHECKED)


class SqliteFile:
    """A file that may not be there yet; the first `write` makes it, and its folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.where = str(path)
        self._holders = 0
        self._held: sqlite3.Connection | None = None
        self._damaged: sqlite3.Connection | None = None

    def __reduce__(self) -> tuple[type[SqliteFile], tuple[Path]]:
        """Connections do not travel to another process."""
        return SqliteFile, (self.path,)

    def write(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` in a transaction and commits. No other process writes at the same time.

        A damaged file gets another name, with a warning. `work` then runs on a new file, which has every row that could
        be read.

        Raises:
            StoreError: the place cannot be written. Nothing was stored.
        """
        try:
            self._make_folder()
            with self._only_writer():
                self._refuse_other_kinds("write")
                return self._try(lambda: self._transaction(work), "write", even_if_nothing_is_saved=True)
        except OSError as error:
            raise StoreError(f"cannot write {self.where}: {error}", *_NOT_PERMITTED) from error

    def read(self, work: Callable[[Connection], T]) -> T:
        """Runs `work` on one consistent state of the file. Changes nothing, so a read-only folder will do.

        One exception: a damaged file that holds rows is replaced as by `write`, if that is permitted.

        Raises:
            StoreError: there is no file, or it cannot be read.
        """
        try:
            return self._look(work)
        except (sqlite3.Error, OSError, DamagedRow) as error:
            if not (_is_damage(error) and os.access(self.path.parent, os.W_OK)):
                raise _in_words(error, "read", self.where) from error
            with self._only_writer():
                # Another process may have replaced it.
                return self._try(lambda: self._look(work), "read", even_if_nothing_is_saved=False)

    def _look(self, work: Callable[[Connection], T]) -> T:
        if not self.path.exists():
            raise nothing_there(self.where)
        self._refuse_other_kinds("read")
        with contextlib.closing(self._connect_to_read()) as connection:
            # Begin explicitly, because `isolation_level=None` begins nothing: two queries could see two states of the
            # file.
            connection.execute("BEGIN")
            return work(Connection(connection, "sqlite"))

    def _try(self, attempt: Callable[[], T], verb: str, even_if_nothing_is_saved: bool, is_replaced: bool = False) -> T:
        """Needs the lock. After damage the attempt is repeated, on the new file."""
        try:
            return attempt()
        except (sqlite3.Error, OSError, DamagedRow) as error:
            if is_replaced or not (_is_damage(error) and self._replace(error, even_if_nothing_is_saved)):
                raise _in_words(error, verb, self.where) from error
        return self._try(attempt, verb, even_if_nothing_is_saved, is_replaced=True)

    def _refuse_other_kinds(self, verb: str) -> None:
        """Opening a fifo would wait for another process at its other end."""
        if self.path.exists() and not self.path.is_file():
            raise StoreError(f"cannot {verb} {self.where}: it isn't a regular file", *_NOT_PERMITTED)

    @contextlib.contextmanager
    def held_open(self) -> Generator[None, None, None]:
        """While it lasts, a write waits for the disk once and not three times: for many rows one after the other.

        When the last connection closes, SQLite copies the -wal into the file and removes it. A connection that only
        looks on keeps it from doing so after every row. Rows are as durable as ever: they are in the -wal.
        """
        self._holders += 1
        try:
            yield
        finally:
            self._holders -= 1
            if self._held is not None and not self._holders:
                with self._only_writer():  # closing writes
                    self._release()

    def _release(self) -> None:
        if self._held is not None:
            self._held.close()
            self._held = None

    def _replace(self, error: BaseException, even_if_nothing_is_saved: bool) -> bool:
        """Sets the damaged file aside, and puts one in its place that has what could be read of it. Needs the lock.

        False where that would be nothing, and nothing was done.
        """
        self._release()
        new = Path(f"{self.path}.salvaged")
        for left_over in (new, Path(f"{new}-wal"), Path(f"{new}-shm")):  # by a process that was killed here
            left_over.unlink(missing_ok=True)
        saved = SqliteFile(new)._transaction(lambda connection: salvage(self.path, connection))
        if not saved:
            new.unlink()  # kept, it would be an empty database where there was none of ours
            if not even_if_nothing_is_saved:
                return False
        aside = _set_aside(self.path)
        # Close before there is a new file: closing later would remove the new file's -wal.
        if self._damaged is not None:
            self._damaged.close()
            self._damaged = None
        if new.exists():
            new.rename(self.path)
        warnings.warn(
            f"the database {self.where} was damaged ({error}) and is now {aside}; a new one was started: "
            + (saved or "nothing of benchax in it could be read"),
            stacklevel=6,
        )
        return True

    def _transaction(self, work: Callable[[Connection], T]) -> T:
        with contextlib.closing(self._connect_to_write()) as connection:
            # A transaction that first reads and then writes would fail instead of wait if another one wrote in between.
            connection.execute("BEGIN IMMEDIATE")
            result = work(Connection(connection, "sqlite"))
            connection.execute("COMMIT")
            if self._holders and self._held is None:
                # While another connection is open, the writer's closing does not copy the -wal into the file: 7.5 ms a
                # row, not 22.
                self._held = self._connect_to_read()
                self._held.execute("SELECT count(*) FROM sqlite_master").fetchone()  # it opens the file no sooner
            return result

    def _make_folder(self) -> None:
        folder = self.path.parent
        if folder.is_dir():
            return
        try:
            folder.mkdir(parents=True)
        except FileExistsError:  # another process was faster, or it is a file
            if not folder.is_dir():
                raise StoreError(f"cannot write {self.where}: {folder} is a file", *_NOT_PERMITTED) from None
        else:
            # Only in a folder that benchax created: elsewhere it would hide the user's files from git.
            hide_from_git(folder)

    def _only_writer(self) -> contextlib.AbstractContextManager[int]:
        return only_writer(Path(f"{self.where}-lock"), self.where)

    def _connect_to_write(self) -> sqlite3.Connection:
        is_new = not self.path.exists() or self.path.stat().st_size == 0
        # Python's own isolation levels begin and commit by their own rules, which do not fit this file.
        connection = sqlite3.connect(self.path, timeout=WAIT_S, isolation_level=None)
        try:
            # The mode is stored in the file. Set it only on new files, so that the file of a newer benchax stays as it
            # is.
            for pragma in ("PRAGMA journal_mode=WAL",) * is_new + _PRAGMAS:
                connection.execute(pragma)
        except sqlite3.Error as error:
            # Closing would remove the -wal, which must move together with a damaged file.
            if _is_damage(error):
                self._damaged = connection
            else:
                connection.close()
            raise
        return connection

    def _connect_to_read(self) -> sqlite3.Connection:
        """Connects to read and write if that is permitted, because only such a connection leaves no -wal and -shm
        behind.

        Without write permission, SQLite refuses a file in WAL mode unless the connection declares it immutable. Another
        user can still change it: then a read can fail during the few milliseconds of a write. Files with rows in the
        -wal are not opened this way, because those rows would be missed.
        """
        mode = "mode=rw"
        if not os.access(self.path.parent, os.W_OK):
            mode = "mode=ro" if self._has_wal() else "mode=ro&immutable=1"
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?{mode}", uri=True, timeout=WAIT_S, isolation_level=None
        )
        connection.execute(_CHECKED)
        return connection

    def _has_wal(self) -> bool:
        """Are there rows in the -wal? Whoever closes the file last removes it, at any moment."""
        try:
            return Path(f"{self.where}-wal").stat().st_size > 0
        except FileNotFoundError:
            return False


def nothing_there(where: str) -> StoreError:
    return StoreError(f"no database at {where}", hint="run `benchax run` first, or name another place with --store")


def _set_aside(path: Path) -> Path:
    """Renames the file and its companions. The database comes last: a -wal must never wait next to a new database."""
    aside = Path(f"{path}.damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
    for companion in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            Path(f"{path}{companion}").rename(f"{aside}{companion}")
    return aside


def _code(error: BaseException) -> int:
    """The primary result code of SQLite (sqlite.org/rescode.html); 0 where sqlite3 itself objected."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def _is_damage(error: BaseException) -> bool:
    if isinstance(error, DamagedRow) or "Could not decode to UTF-8" in str(error):
        return True
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


_NOT_PERMITTED = ("a folder that you can create and write to", "name another place with --store or store=")
_DAMAGED = (
    "a database of benchax",
    "the next row that is written sets the file aside under another name and starts a new one with what can be read",
)
_ADVICE: dict[int, tuple[str, str]] = {
    sqlite3.SQLITE_FULL: ("free space on the disk", "make room, or name another place with --store or store="),
    sqlite3.SQLITE_IOERR: (
        "a disk with free space and no limit on file sizes (ulimit -f)",
        "see `df` and `dmesg`",
    ),
    sqlite3.SQLITE_BUSY: (f"a lock within {WAIT_S:.0f} s", "end the process that has the file open (lsof, fuser)"),
    sqlite3.SQLITE_READONLY: _NOT_PERMITTED,
    sqlite3.SQLITE_CANTOPEN: _NOT_PERMITTED,
    sqlite3.SQLITE_PERM: _NOT_PERMITTED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
}


def _in_words(error: BaseException, verb: str, where: str) -> StoreError:
    expected, hint = _ADVICE.get(_code(error), _NOT_PERMITTED if isinstance(error, OSError) else ("", ""))
    if verb == "read" and expected == _NOT_PERMITTED[0]:
        expected, hint = "a file that may be read", "copy its folder to one of your own and read that"
    return StoreError(f"cannot {verb} {where}: {error}", expected, hint)


# ---- salvage ---------------------------------------------------------------------------------------------------------
#
# Saves the contents of a damaged database file: every row whose parts can all be read, under its old id.
#
# SQLite reads the file, in ranges of row ids that get smaller around damage. Data from a damaged page can be nonsense.
# A row counts only if its document is whole and fits its readings; a program only if it has its digest.


LEAST_BYTES = 200
"""Each row takes more, with its parts. This bounds the search for rows behind damage."""
_INDEXES = {
    "measurements": ["INDEXED BY measurements_of_case"],
    "comparisons": ["INDEXED BY comparisons_of_case"],
    "samples": ["INDEXED BY sqlite_autoindex_samples_1"],
    "programs": ["INDEXED BY sqlite_autoindex_programs_1"],
}
"""Where the row ids of a table are a second time: if its last page is damaged, only an index knows the highest one."""


def salvage(path: Path, connection: Connection) -> str:
    """Writes what can be read of the file at `path` into a new database. Changes nothing at `path`.

    Returns how much was saved, in words; empty if it is nothing.

    Raises:
        OSError: the file cannot be read.
    """
    migrate(connection, str(path))
    path.open("rb").close()
    most = 100 + path.stat().st_size // LEAST_BYTES
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as old:
        old.execute(_CHECKED)
        # Damaged bytes may decode, but such a row does not match its checksums.
        old.text_factory = partial(str, encoding="utf-8", errors="replace")
        for sha256, content in _read(old, most, "programs", "sha256", "content"):
            if isinstance(content, bytes) and hashlib.sha256(content).hexdigest() == sha256:
                keep_program(connection, Program(sha256, len(content), content))
        for id, document in _read(old, most, "comparisons", "id", "document"):
            with contextlib.suppress(FormatError):  # damaged, or of a newer benchax: it stays in the old file
                c = comparison_columns(connection, decode_comparison(document), document)
                connection.insert("comparisons", [{"id": id} | c], UNLESS_THERE)
        for id, *texts in _read(old, most, "baselines", "id", "name", "run_id", "set_at"):
            if all(isinstance(text, str) for text in texts):
                with contextlib.suppress(DamagedRow):
                    named = dict(zip(("name", "run_id", "set_at"), map(decode_text, texts), strict=True))
                    connection.insert("baselines", [{"id": id} | named], UNLESS_THERE)
        arrays = [
            (row, position, array)
            for row, position, *array in _read(
                old, most, "samples", "measurement_id", "position", "elapsed_s", "disturbed"
            )
            if isinstance(row, int) and row <= most and isinstance(position, int)
        ]
        documents = dict(_read(old, most, "measurements", "id", "document"))
        last = _last(old, most, "measurements") or 0
    of_row = group_by(sorted(arrays, key=lambda found: found[:2]), lambda found: found[0])
    for id in sorted(documents):
        with contextlib.suppress(DamagedRow, NewerFormat):  # a part of it is missing
            m = read_record(id, documents[id], [(array[0], array[1]) for _, _, array in of_row.get(id, ())])
            StorableRow(m).insert(connection, id)
    tables = ("measurements", "comparisons", "baselines")
    rows, *others = (connection.scalar(f"SELECT count(*) FROM {table}") for table in tables)
    # Ids begin at 1, and rows are never removed.
    least = max([0, last, *documents, *of_row])
    if not rows and not any(others):
        return ""
    if rows == least:
        return f"all {plural(rows, 'row')} that were found could be read"
    return f"{rows} of at least {plural(least, 'row')} could be read"


def _read(old: sqlite3.Connection, most: int, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
    """Reads these columns of each row that can be read. Indexes are left aside: they can be damaged too."""
    query = f"SELECT {', '.join(columns)} FROM {table} NOT INDEXED WHERE rowid BETWEEN ? AND ?"
    known = _last(old, most, table)
    waiting = [(1, most if known is None else known)]
    while waiting:
        first, last = waiting.pop()
        try:
            found = old.execute(query, (first, last)).fetchall()
        except sqlite3.Error:
            found = None
        # Rows are never removed. If one is missing, a damaged row id ended the search.
        is_whole = found is not None and (len(found) > last - first or (known is None and not found))
        if found and (is_whole or first == last):
            yield from found
        elif not is_whole and first < last:
            middle = (first + last) // 2
            waiting += [(middle + 1, last), (first, middle)]


def _last(old: sqlite3.Connection, most: int, table: str) -> int | None:
    """Finds the highest row id, 0 if there is no row; None if damage hides it, or makes it impossibly high."""
    for way in ("NOT INDEXED", *_INDEXES.get(table, ())):
        with contextlib.suppress(sqlite3.Error):
            last = old.execute(f"SELECT max(rowid) FROM {table} {way}").fetchone()[0] or 0
            if last <= most:
                return last
    return None
