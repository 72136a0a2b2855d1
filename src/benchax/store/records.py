"""A measurement as columns and arrays, and back; and the programs that rows keep."""

from __future__ import annotations

import dataclasses
import struct
import zlib
from collections.abc import Sequence
from typing import Any

from benchax import codec
from benchax.errors import FormatError
from benchax.json_values import Mismatch
from benchax.model import CaseId, Measurement, Program, Samples
from benchax.store.base import Row, row_of
from benchax.store.schema import SCALARS, Connection, DamagedRow, case_columns, flag

READINGS_CRC32 = "readings_crc32"
"""Key of a stored document, which no field of a measurement has: of the bytes of each array of readings. SQLite does
not notice a damaged page that holds nothing else."""
UNLESS_THERE = "ON CONFLICT DO NOTHING"
"""On a server another writer may be adding the same right now."""
_GREATEST = 2**63 - 1


class StorableRow:
    """A measurement, made ready to be stored: what takes time is done before anything is locked."""

    def __init__(self, m: Measurement) -> None:
        self.case = case_columns(m.case)
        self.program = m.program
        self.arrays = [_arrays(s) for s in m.samples]
        self.values = _columns(m, [zlib.crc32(array["elapsed_s"] or b"") for array in self.arrays])

    def insert(self, connection: Connection, id: int | None = None) -> int:
        """Stores it, under the next id unless one is given, and returns the id."""
        given = {} if id is None else {"id": id}
        new = connection.add("measurements", {"case_id": case_id_of(connection, self.case)} | self.values | given)
        connection.insert(
            "samples", [{"measurement_id": new, "position": i} | array for i, array in enumerate(self.arrays)]
        )
        if self.program is not None:
            keep_program(connection, self.program)
        return new


def case_id_of(connection: Connection, case: dict[str, str]) -> int:
    """The id of a case, which is added if need be."""
    known = 'SELECT id FROM cases WHERE "key" = ?', [case["key"]]
    found: int | None = connection.scalar(*known)
    if found is not None:
        return found
    connection.insert("cases", [case], UNLESS_THERE)
    return connection.scalar(*known)


def _columns(m: Measurement, checksums: Sequence[int]) -> dict[str, Any]:
    """The scalars of a row, and its document without the readings, which are stored as arrays."""
    row = row_of(m)
    bare = tuple(dataclasses.replace(s, elapsed_s=(), disturbed=None) for s in m.samples)
    scalars = {name: _storable(getattr(row, name)) for name in SCALARS}
    document = codec.encode(dataclasses.replace(m, samples=bare), {READINGS_CRC32: list(checksums)})
    return scalars | {"document": document}


def _storable(value: Any) -> Any:
    """A compiler that says 2**64 - 1 bytes must not cost the row; the document keeps what it said."""
    return min(value, _GREATEST) if type(value) is int else value


def _arrays(s: Samples) -> dict[str, bytes | None]:
    return {
        # In one byte order, so that a file can be copied to another machine.
        "elapsed_s": struct.pack(f"<{len(s.elapsed_s)}d", *s.elapsed_s),
        "disturbed": None if s.disturbed is None else bytes(s.disturbed),
    }


_ROWS = (
    "SELECT m.id, c.name, c.params, c.variant, c.tag, "
    + ", ".join(f'm."{name}"' for name in SCALARS)
    # A row without its case is damaged, and is not to be passed over.
    + " FROM measurements m LEFT JOIN cases c ON m.case_id = c.id WHERE {} ORDER BY m.id"
)


def read_rows(connection: Connection, condition: str, values: Sequence[Any] = ()) -> list[Row]:
    """The scalars of the measurements `m` that answer to a condition, oldest first. Raises `DamagedRow`."""
    return [_read_row(*record) for record in connection.execute(_ROWS.format(condition), values)]


def _read_row(id: int, name: str | None, params: str, variant: str, tag: str, *scalars: Any) -> Row:
    if name is None:
        raise DamagedRow(f"row {id} is damaged: its case is missing")
    try:
        found = dict(zip(SCALARS, scalars, strict=True))
        found["is_dirty"] = flag(found["is_dirty"])
        return Row(id, CaseId(name, codec.decode_params(params), variant, tag), **found)
    except (ValueError, TypeError, AttributeError, Mismatch) as error:
        raise DamagedRow(f"row {id} is damaged: {error}") from error


def read_record(id: int, document: str, arrays: Sequence[tuple[bytes, bytes | None]]) -> Measurement:
    """Puts together what `StorableRow` took apart.

    Args:
        arrays: (elapsed_s, disturbed) of each timer, in order.

    Raises:
        DamagedRow: the parts are not of one row, or not what was stored.
        NewerFormat: a newer benchax wrote it.
    """
    try:
        found = codec.load(document)
        bare = codec.from_document(found)
        checksums = found.get(READINGS_CRC32)
        if checksums is not None and checksums != [zlib.crc32(elapsed_s) for elapsed_s, _ in arrays]:
            raise ValueError("its readings are not those that were stored")
        samples = tuple(
            dataclasses.replace(
                s,
                elapsed_s=struct.unpack(f"<{len(elapsed_s) // 8}d", elapsed_s),
                disturbed=None if disturbed is None else tuple(map(bool, disturbed)),
            )
            for s, (elapsed_s, disturbed) in zip(bare.samples, arrays, strict=True)
        )
    except codec.NewerFormat:
        raise
    except (FormatError, ValueError, TypeError, struct.error) as error:
        raise DamagedRow(f"row {id} is damaged: {error}") from error
    return dataclasses.replace(bare, samples=samples)


def keep_program(connection: Connection, program: Program) -> None:
    """Stores a program that is not stored yet. For the transaction of its row."""
    if program.content is None:
        return
    # Asked first, because a program can be large.
    if connection.scalar("SELECT 1 FROM programs WHERE sha256 = ?", [program.sha256]) is None:
        connection.insert("programs", [{"sha256": program.sha256, "content": program.content}], UNLESS_THERE)
    if program.source:
        found = {"source": program.source, "sha256": program.sha256}
        connection.insert("program_sources", [found], UNLESS_THERE)


def program_from(connection: Connection, source: str) -> Program | None:
    """Returns the program that was exported from this source, without its content; None if it is not stored."""
    found = connection.execute(
        "SELECT p.sha256, length(p.content) FROM programs p JOIN program_sources s ON s.sha256 = p.sha256 "
        "WHERE s.source = ?",
        [source],
    )
    return Program(found[0][0], found[0][1], source=source) if found else None


def program_of(connection: Connection, sha256: str) -> bytes | None:
    """Returns the content of a program; None if it is not stored."""
    return connection.scalar("SELECT content FROM programs WHERE sha256 = ?", [sha256])
