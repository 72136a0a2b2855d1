"""A measurement as columns and arrays; the way back is `readings.py`."""

from __future__ import annotations

import dataclasses
import struct
import zlib
from collections.abc import Sequence
from importlib import import_module
from typing import Any

from sqlalchemy import Connection, insert, select

from benchax import codec
from benchax.model import Measurement, Samples
from benchax.store.base import row_of
from benchax.store.readings import READINGS_CRC32
from benchax.store.schema import SCALARS, case_columns, cases, keep_program, measurements, samples

_GREATEST = 2**63 - 1
_INSERT_MEASUREMENT = insert(measurements).returning(measurements.c.id)


class StorableRow:
    """A measurement, made ready to be stored: what takes time is done before anything is locked."""

    def __init__(self, m: Measurement) -> None:
        self.case = case_columns(m.case)
        self.program = m.program
        self.arrays = [_arrays(s) for s in m.samples]
        self.values = _columns(m, [zlib.crc32(array["elapsed_s"] or b"") for array in self.arrays])

    def insert(self, connection: Connection, id: int | None = None) -> int:
        """Stores it, under the next id unless one is given, and returns the id."""
        values = self.values | {"case_id": case_id_of(connection, self.case)}
        given = {} if id is None else {"id": id}
        new: int = connection.execute(_INSERT_MEASUREMENT, values | given).scalar_one()
        if self.arrays:
            listed = [array | {"measurement_id": new, "position": i} for i, array in enumerate(self.arrays)]
            connection.execute(insert(samples), listed)
        if self.program is not None:
            keep_program(connection, self.program)
        return new


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


def _columns(m: Measurement, checksums: Sequence[int]) -> dict[str, Any]:
    """The scalars of a row, and its document without the readings, which are stored as arrays."""
    row = row_of(m)
    bare = tuple(dataclasses.replace(s, elapsed_s=(), disturbed=None) for s in m.samples)
    scalars = {c.name: _storable(getattr(row, c.name)) for c in SCALARS}
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
