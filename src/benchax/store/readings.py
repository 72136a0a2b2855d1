"""A stored document and its arrays of readings, put together and checked. Works without SQLAlchemy."""

from __future__ import annotations

import dataclasses
import struct
import zlib
from collections.abc import Sequence

from benchax import codec
from benchax.errors import FormatError, StoreError
from benchax.model import Measurement

READINGS_CRC32 = "readings_crc32"
"""Key of a stored document, which no field of a measurement has: of the bytes of each array of readings. SQLite does
not notice a damaged page that holds nothing else."""


class DamagedRow(StoreError):
    """The data of a row in a database is not a valid row of benchax."""


def read_record(id: int, document: str, arrays: Sequence[tuple[bytes, bytes | None]]) -> Measurement:
    """Puts together what `records.StorableRow` took apart.

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
        return _join(bare, arrays)
    except codec.NewerFormat:
        raise
    except (FormatError, ValueError, TypeError, struct.error) as error:
        raise DamagedRow(f"row {id} is damaged: {error}") from error


def _join(bare: Measurement, arrays: Sequence[tuple[bytes, bytes | None]]) -> Measurement:
    """Puts the readings back to where `StorableRow` took them from."""
    return dataclasses.replace(
        bare,
        samples=tuple(
            dataclasses.replace(
                s,
                elapsed_s=struct.unpack(f"<{len(elapsed_s) // 8}d", elapsed_s),
                disturbed=None if disturbed is None else tuple(map(bool, disturbed)),
            )
            for s, (elapsed_s, disturbed) in zip(bare.samples, arrays, strict=True)
        ),
    )
