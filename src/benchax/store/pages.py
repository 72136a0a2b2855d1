"""Reads the records of an SQLite file page by page, whatever has become of its other pages.

SQL reaches a row by way of the pages above it, so that one damaged page hides all below it. Here every page that looks
like a leaf of a table is read by itself (sqlite.org/fileformat2.html), and what its cells say is followed into overflow
pages. Nothing says which table a leaf belongs to, and what is read may be nonsense: who asks must know his records.

Pages that are newer in the -wal are taken from there, up to its last commit.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

Value = None | int | float | str | bytes

MAGIC = b"SQLite format 3\0"
USUAL_SIZE = 4096
"""Of pages, where the header is lost: what SQLite takes unless it is told otherwise."""
_SIZES = {1 << n for n in range(9, 17)}
_LEAF_OF_TABLE = 0x0D
_WAL_HEADER, _FRAME_HEADER = 32, 24
_WAL_MAGIC = (0x377F0682, 0x377F0683)
_INTEGER_BYTES = (0, 1, 2, 3, 4, 6, 8)
"""By serial type."""


class PageFile:
    """An SQLite file and its -wal, as numbered pages."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        wal = Path(f"{path}-wal")
        self._wal = wal.open("rb") if wal.is_file() else None
        header = self._file.read(100)
        self.is_sqlite = header.startswith(MAGIC)
        size, reserved = struct.unpack_from(">HxxB", header.ljust(100, b"\0"), 16)
        self.size = 65536 if size == 1 else size
        if not self.is_sqlite or self.size not in _SIZES:
            self.size, reserved = USUAL_SIZE, 0
        self.usable = self.size - reserved
        self._newer = _frames(self._wal, self.size) if self._wal is not None else {}
        self.count = max([self._file.seek(0, 2) // self.size, *self._newer])

    def __enter__(self) -> PageFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._file.close()
        if self._wal is not None:
            self._wal.close()

    def page(self, number: int) -> bytes:
        """Page `number`, counted from 1; less than a page, or nothing, where the file ends."""
        if self._wal is not None and number in self._newer:
            return _read_at(self._wal, self._newer[number], self.size)
        return _read_at(self._file, (number - 1) * self.size, self.size)

    def records(self) -> Iterator[tuple[int, tuple[Value, ...]]]:
        """(rowid, values) of whatever can be read as a record."""
        for number in range(1, self.count + 1):
            page = self.page(number)
            if len(page) == self.size:
                yield from self._records_of(page, start=100 if number == 1 else 0)

    def _records_of(self, page: bytes, start: int) -> Iterator[tuple[int, tuple[Value, ...]]]:
        if page[start] != _LEAF_OF_TABLE:
            return
        (count,) = struct.unpack_from(">H", page, start + 3)
        for i in range(count):
            try:
                (at,) = struct.unpack_from(">H", page, start + 8 + 2 * i)
                length, at = _varint(page, at)
                rowid, at = _varint(page, at)
                yield rowid - (1 << 64) * (rowid >> 63), _values(self._payload(page, at, length))
            except (struct.error, IndexError, ValueError):  # this cell is damaged; the others may not be
                continue

    def _payload(self, page: bytes, at: int, length: int) -> bytes:
        """The content of a cell. Raises ValueError where its overflow pages do not make up what it lacks."""
        local = self._local_length(length)
        if length > self.count * self.size or at + local > self.usable:
            raise ValueError("beyond the file")
        found = [page[at : at + local]]
        missing = length - local
        following = int.from_bytes(page[at + local : at + local + 4]) if missing else 0
        while missing > 0:
            if not 2 <= following <= self.count:
                raise ValueError("the chain of overflow pages is broken")
            part = self.page(following)
            following = int.from_bytes(part[:4])
            found.append(part[4 : min(self.usable, 4 + missing)])
            missing -= self.usable - 4
        if following:
            raise ValueError("the chain of overflow pages goes on")
        return b"".join(found)

    def _local_length(self, length: int) -> int:
        most = self.usable - 35
        if length <= most:
            return length
        least = (self.usable - 12) * 32 // 255 - 23
        fitting = least + (length - least) % (self.usable - 4)
        return fitting if fitting <= most else least


def _frames(wal: BinaryIO, size: int) -> dict[int, int]:
    """Where in the -wal the newest content of each page begins. Frames behind the last commit do not count."""
    header = wal.read(_WAL_HEADER)
    if len(header) < _WAL_HEADER or int.from_bytes(header[:4]) not in _WAL_MAGIC:
        return {}
    if int.from_bytes(header[8:12]) != size:
        return {}
    committed, pending = dict[int, int](), dict[int, int]()
    at = _WAL_HEADER
    while len(frame := _read_at(wal, at, _FRAME_HEADER)) == _FRAME_HEADER:
        number, size_after_commit = struct.unpack_from(">II", frame)
        if frame[8:16] != header[16:24]:  # left over from before the last checkpoint
            break
        pending[number] = at + _FRAME_HEADER
        if size_after_commit:
            committed |= pending
            pending = {}
        at += _FRAME_HEADER + size
    return committed


def _read_at(file: BinaryIO, at: int, length: int) -> bytes:
    file.seek(at)
    return file.read(length)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, where it ends)"""
    value = 0
    for i in range(8):
        value = value << 7 | data[at + i] & 0x7F
        if data[at + i] < 0x80:
            return value, at + i + 1
    return value << 8 | data[at + 8], at + 9


def _values(payload: bytes) -> tuple[Value, ...]:
    """The values of a record. Raises ValueError, IndexError where it is none."""
    header_length, at = _varint(payload, 0)
    types: list[int] = []
    while at < header_length:
        kind, at = _varint(payload, at)
        types.append(kind)
    if at != header_length or not types:
        raise ValueError("no header of a record")
    values: list[Value] = []
    for kind in types:
        length = _length_of(kind)
        if at + length > len(payload):
            raise ValueError("a record longer than its cell")
        values.append(_value(kind, payload[at : at + length]))
        at += length
    return tuple(values)


def _length_of(kind: int) -> int:
    if kind >= 12:
        return (kind - 12) // 2
    if kind <= 6:
        return _INTEGER_BYTES[kind]
    if kind in (10, 11):
        raise ValueError("a type that SQLite does not have")
    return 8 if kind == 7 else 0


def _value(kind: int, content: bytes) -> Value:
    if kind >= 12:
        return content.decode() if kind % 2 else content
    if kind == 7:
        return struct.unpack(">d", content)[0]
    if kind in (8, 9):
        return kind - 8
    return int.from_bytes(content, signed=True) if kind else None
