"""Saves the contents of a damaged database file: every row whose parts can all be read, under its old id.

SQLite reads the file, in ranges of row ids that get smaller around damage. Data from a damaged page can be nonsense. A
row counts only if its document is whole and fits its readings; a program only if it has its digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchax.codec import NewerFormat, decode_comparison
from benchax.errors import FormatError
from benchax.model import Program
from benchax.store.records import UNLESS_THERE, StorableRow, case_id_of, keep_program, read_record
from benchax.store.schema import Connection, DamagedRow, case_columns, decode_text, migrate
from benchax.units import plural

Array = tuple[bytes, bytes | None]
LEAST_BYTES = 200
"""Each row takes more, with its parts. This bounds the search for rows behind damage."""
_INDEXES = {
    "measurements": ["INDEXED BY measurements_of_case"],
    "comparisons": ["INDEXED BY comparisons_of_case"],
    "samples": ["INDEXED BY sqlite_autoindex_samples_1"],
    "programs": ["INDEXED BY sqlite_autoindex_programs_1"],
}
"""Where the row ids of a table are a second time: if its last page is damaged, only an index knows the highest one."""


@dataclass(frozen=True)
class Salvaged:
    """How much was saved."""

    rows: int
    least: int
    """The database had at least this many rows."""
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
    path.open("rb").close()
    with contextlib.closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as old:
        old.execute("PRAGMA cell_size_check=ON")  # noticed when a damaged page is read, and not when its nonsense is
        old.text_factory = _decode
        return _Salvage(path, old, connection).run()


class _Salvage:
    def __init__(self, path: Path, old: sqlite3.Connection, connection: Connection) -> None:
        self.old, self.connection = old, connection
        self.most = 100 + path.stat().st_size // LEAST_BYTES
        self.others = 0

    def run(self) -> Salvaged:
        for sha256, content in self._read("programs", "sha256", "content"):
            if isinstance(content, bytes) and hashlib.sha256(content).hexdigest() == sha256:
                keep_program(self.connection, Program(sha256, len(content), content))
        for id, document in self._read("comparisons", "id", "document"):
            self._take_comparison(id, document)
        for id, name, run_id, set_at in self._read("baselines", "id", "name", "run_id", "set_at"):
            if all(isinstance(value, str) for value in (name, run_id, set_at)):
                self._add("baselines", id, {"name": decode_text(name), "run_id": decode_text(run_id), "set_at": set_at})
        arrays = defaultdict[int, dict[int, Array]](dict)
        for row, position, *array in self._read("samples", "measurement_id", "position", "elapsed_s", "disturbed"):
            if isinstance(row, int) and row <= self.most and isinstance(position, int):
                arrays[row][position] = (array[0], array[1])
        documents = dict(self._read("measurements", "id", "document"))
        rows = sum(self._restore(id, documents[id], arrays[id]) for id in sorted(documents))
        # Ids begin at 1, and no row is ever removed.
        return Salvaged(rows, max([0, self._last("measurements") or 0, *documents, *arrays]), self.others)

    def _read(self, table: str, *columns: str) -> Iterator[tuple[Any, ...]]:
        """Reads these columns of each row that can be read. Indexes are left aside: they can be damaged too."""
        query = f"SELECT {', '.join(columns)} FROM {table} NOT INDEXED WHERE rowid BETWEEN ? AND ?"
        known = self._last(table)
        waiting = [(1, self.most if known is None else known)]
        while waiting:
            first, last = waiting.pop()
            try:
                found = self.old.execute(query, (first, last)).fetchall()
            except sqlite3.Error:
                found = None
            # No row is ever removed. Where one is missing, a damaged row id has ended the search.
            is_whole = found is not None and (len(found) > last - first or (known is None and not found))
            if found and (is_whole or first == last):
                yield from found
            elif not is_whole and first < last:
                middle = (first + last) // 2
                waiting += [(middle + 1, last), (first, middle)]

    def _last(self, table: str) -> int | None:
        """Finds the highest row id, 0 if there is no row; None if damage hides it, or makes it impossibly high."""
        for way in ("NOT INDEXED", *_INDEXES.get(table, ())):
            with contextlib.suppress(sqlite3.Error):
                last = self.old.execute(f"SELECT max(rowid) FROM {table} {way}").fetchone()[0] or 0
                if last <= self.most:
                    return last
        return None

    def _take_comparison(self, id: int, document: Any) -> None:
        try:
            c = decode_comparison(document)
        except FormatError:  # damaged, or of a newer benchax: it stays in the old file
            return
        case_id = case_id_of(self.connection, case_columns(c.case))
        values = {"case_id": case_id, "metric": c.metric, "baseline": c.baseline.label, "document": document}
        self._add("comparisons", id, values)

    def _add(self, table: str, id: int, values: dict[str, Any]) -> None:
        self.connection.insert(table, [{"id": id} | values], UNLESS_THERE)
        self.others += 1

    def _restore(self, id: int, document: Any, arrays: dict[int, Array]) -> bool:
        """Stores a row again; False if a part of it is missing."""
        try:
            m = read_record(id, document, [arrays[position] for position in sorted(arrays)])
        except (DamagedRow, NewerFormat):
            return False
        StorableRow(m).insert(self.connection, id)
        return True


def _decode(text: bytes) -> str:
    """Decodes nonsense too. No row that was damaged this way fits its checksums."""
    return text.decode(errors="replace")
