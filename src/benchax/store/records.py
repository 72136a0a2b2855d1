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
_INSERT_MEASUREMENTS = insert(measurements).returning(measurements.c.id, sort_by_parameter_order=True)


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


def insert_all(connection: Connection, records: Sequence[StorableRow]) -> list[int]:
    """Stores them in their order, and returns their ids. A statement for all rows takes a fifth of one for each."""
    if not records:
        return []
    ids = _case_ids_of(connection, {record.case["key"]: record.case for record in records})
    values = [record.values | {"case_id": ids[record.case["key"]]} for record in records]
    new = list(connection.execute(_INSERT_MEASUREMENTS, values).scalars())
    arrays = [
        array | {"measurement_id": id, "position": i}
        for id, record in zip(new, records, strict=True)
        for i, array in enumerate(record.arrays)
    ]
    if arrays:
        connection.execute(insert(samples), arrays)
    for record in records:
        if record.program is not None:
            keep_program(connection, record.program)
    return new


def _case_ids_of(connection: Connection, found: dict[str, dict[str, str]]) -> dict[str, int]:
    """The ids of cases by their keys; those that are missing are added."""
    known = select(cases.c.key, cases.c.id).where(cases.c.key.in_(list(found)))
    ids: dict[str, int] = {key: id for key, id in connection.execute(known)}  # noqa: C416 - rows, not pairs
    if missing := [case for key, case in found.items() if key not in ids]:
        insert_new = import_module(f"sqlalchemy.dialects.{connection.dialect.name}").insert
        connection.execute(insert_new(cases).on_conflict_do_nothing(), missing)
        ids |= {key: id for key, id in connection.execute(known)}  # noqa: C416
    return ids


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
