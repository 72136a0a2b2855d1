"""Reads protobuf's wire format: of profiles (XSpace), programs (HLO) and plans for memory.

A dependency on protobuf would be heavier than this file. `fields` reads one message in Python; `together` reads
millions of small messages at once with NumPy, one field of each per pass. Both say at which byte they could not go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchax.errors import FormatError
from benchax.grouping import group_by

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
WIDTHS = {FIXED64: 8, FIXED32: 4}
PADDING = 16
"""Padding bytes after the data, so that `together` can read one number too far; it never uses their content."""
Ints = NDArray[np.int64]


class Field(NamedTuple):
    """One field of a message: a number, or the place of its bytes."""

    number: int
    wire: int
    value: int
    """The varint, or the length of the bytes."""
    start: int
    """Where the value's bytes begin."""
    after: int
    """Where the next field begins."""

    @property
    def end(self) -> int:
        return self.start + self.value


def broken(at: int, why: str) -> FormatError:
    return FormatError(
        f"not a whole message of protobuf: {why} at byte {at}",
        "a message as it was written, such as a trace in <host>.xplane.pb",
        "perhaps the file was cut while it was written or copied; profile again",
    )


def fields(data: bytes, start: int, end: int) -> Iterator[Field]:
    """The fields of the message `data[start:end]`, in their order."""
    at = start
    while at < end:
        tag, value_at = varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise broken(at, "a field without a number")
        if wire not in (VARINT, BYTES, *WIDTHS):
            raise broken(at, f"a field of the unknown wire type {wire}")
        value, begin = (WIDTHS[wire], value_at) if wire in WIDTHS else varint(data, value_at, end)
        # A number has been read already; the bytes of other values follow.
        after = begin if wire == VARINT else begin + value
        if after > end:
            raise broken(at, f"field {number} is longer than what holds it")
        yield Field(number, wire, value, value_at if wire == VARINT else begin, after)
        at = after


class ProtoMessage:
    """The fields of one message, by number: for messages that are read once, and not a million times."""

    def __init__(self, data: bytes, start: int = 0, end: int | None = None) -> None:
        self.data, self.start, self.end = data, start, len(data) if end is None else end
        self._fields = group_by(fields(data, start, self.end), lambda part: part.number)

    def parts(self, number: int, *wires: int) -> list[Field]:
        """Returns the fields with this number whose wire type is one of those, in their order."""
        return [part for part in self._fields.get(number, ()) if part.wire in wires]

    def bytes_of(self, number: int) -> list[bytes]:
        return [self.data[part.start : part.end] for part in self.parts(number, BYTES)]

    def texts(self, number: int) -> list[str]:
        return [each.decode(errors="replace") for each in self.bytes_of(number)]

    def text(self, number: int) -> str:
        """Returns the last one; empty without one."""
        return (self.texts(number) or [""])[-1]

    def numbers(self, number: int) -> list[int]:
        """Reads a repeated number, either packed into bytes or single."""
        found: list[int] = []
        for part in self.parts(number, VARINT, BYTES):
            at = part.start
            found += [signed(part.value)] if part.wire == VARINT else []
            while part.wire == BYTES and at < part.end:
                value, at = varint(self.data, at, part.end)
                found.append(signed(value))
        return found

    def number(self, number: int) -> int:
        """Returns the last one; 0 without one, because protobuf omits zeros."""
        parts = self.parts(number, VARINT)
        return signed(parts[-1].value) if parts else 0

    def messages(self, number: int) -> list[ProtoMessage]:
        return [ProtoMessage(self.data, part.start, part.end) for part in self.parts(number, BYTES)]


def alike(data: bytes, at: int, end: int, tag: int) -> tuple[list[int], list[int], int]:
    """Returns (starts, ends) of the consecutive messages from `at` with the one-byte tag `tag`, and the end of the last
    one.

    It works as `fields`, for the one field that appears a million times. It stops before a message that is not whole,
    which `fields` refuses.
    """
    starts: list[int] = []
    ends: list[int] = []
    while at + 1 < end and data[at] == tag:
        size, after = (data[at + 1], at + 2) if data[at + 1] < 128 else varint(data, at + 1, end)
        if after + size > end:
            break
        starts.append(after)
        at = after + size
        ends.append(at)
    return starts, ends, at


def varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """(value, where it ends)."""
    value = shift = 0
    start = at
    while True:
        if at >= end or shift > 63:
            raise broken(start, "a number without an end")
        byte = data[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value & (2**64 - 1), at
        shift += 7


def signed(value: int) -> int:
    """A varint as int64: protobuf writes -1 as 2**64 - 1."""
    return value - 2**64 if value >= 2**63 else value


def together(data: NDArray[np.uint8], start: Ints, end: Ints) -> Iterator[tuple[Ints, Ints, Ints, Ints, Ints]]:
    """Yields the fields of many messages: first the first field of each, then the second field, if a message has it,
    ...

    Args:
        data: the bytes, followed by `PADDING`.
        start, end: the position of each message.

    Yields:
        (which message, number, wire type, value, start of the value's bytes), the last two as in `Field`.
    """
    which = np.flatnonzero(start < end)
    at, end = start[which], end[which]
    while len(which):
        tag, value_at = _varints(data, at, end)
        number, wire = tag >> 3, tag & 7
        value, after = _values(data, wire, value_at, end)
        _check(number, wire, value, at, end - after)
        # The bytes of a message follow its length; those of a number have been read.
        length = np.where(wire == VARINT, 0, value)
        yield which, number, wire, value, after
        at = after + length
        rest = at < end
        which, at, end = which[rest], at[rest], end[rest]


def _values(data: NDArray[np.uint8], wire: Ints, at: Ints, end: Ints) -> tuple[Ints, Ints]:
    """(the number or the length, where what follows begins)."""
    value = np.where(wire == FIXED64, 8, np.where(wire == FIXED32, 4, 0))
    after = at.copy()
    is_written = (wire == VARINT) | (wire == BYTES)
    value[is_written], after[is_written] = _varints(data, at[is_written], end[is_written])
    return value, after


def _check(number: Ints, wire: Ints, value: Ints, at: Ints, left: Ints) -> None:
    """`left`: how many bytes there are for the value, where it is not a number."""
    for bad, why in (
        (number <= 0, "a field without a number"),
        (~np.isin(wire, (VARINT, FIXED64, BYTES, FIXED32)), "a field of an unknown wire type"),
        ((wire != VARINT) & ((value < 0) | (value > left)), "a field longer than what holds it"),
    ):
        if bad.any():
            raise broken(int(at[bad][0]), why)


def _varints(data: NDArray[np.uint8], at: Ints, end: Ints) -> tuple[Ints, Ints]:
    """(values as int64, where each ends)."""
    byte = data[at]
    value = (byte & 127).astype(np.uint64)
    after = at + 1
    more = np.flatnonzero(byte >= 128)
    shift = 7
    while len(more):
        if shift > 63:
            raise broken(int(at[more[0]]), "a number without an end")
        byte = data[after[more]]
        value[more] |= (byte & 127).astype(np.uint64) << np.uint64(shift)
        after[more] += 1
        more = more[byte >= 128]
        shift += 7
    if (late := after > end).any():
        raise broken(int(at[late][0]), "a number without an end")
    return value.view(np.int64), after
