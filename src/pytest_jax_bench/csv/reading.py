"""Reads the CSV file of a test: all of it, or its newest rows from the end, as a structured array.

A reader needs no lock: lines are only added, and a file that is rewritten becomes a new one while the old one stays
open. An unreadable line is left out with a warning, and costs no other row.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import warnings
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from fcntl import LOCK_UN, flock
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from benchax.errors import FormatError, StoreError
from benchax.store.file_lock import wait_for
from pytest_jax_bench.csv.blocks import DTYPES, Piece, read_block
from pytest_jax_bench.csv.lines import COLUMNS, CURRENT, KINDS, MAGIC, OLD, LineForm, form_of, is_whole, words_of

Rows = npt.NDArray[np.void]

_BLOCK = 2**22  # bytes read at once: some 20,000 rows, so that one column of them stays in the caches
TAIL = 2**17
"""Bytes at the end of a file that are looked at first: some 200 rows."""
_FEW = 1024
# The first three as in 0.5.0, whose users call np.char on them; the others differ in every row, and this is the
# smallest way to keep them. Beyond this width each row would be as long as the longest, so they become objects.
_FIXED_WIDTH = ("commit", "tag", "parameters", "created", "session")
_WIDEST = 64


@dataclass(frozen=True)
class Head:
    """The lines above the rows."""

    comments: list[str] = field(default_factory=list[str])
    form: LineForm | None = None
    """None for a file without rows whose header is not complete."""
    end: int = 0
    """Where the rows begin, in bytes."""


def read(path: Path) -> Rows:
    """All rows in the order of the file, with all of COLUMNS; -1, nan and "" where the file has no such column.

    Texts have any length. `commit`, `tag`, `parameters`, `created` and `session` are of NumPy's type for texts as wide
    as the longest, the others are objects; the former, too, where one has more than 64 characters.

    Raises:
        StoreError: there is no file, or it cannot be read.
        FormatError: it is not the CSV file of a test, or a newer benchax wrote it.
    """
    with _open(path) as file:
        head = read_head(file, path)
        end, rest = ending(file, head)
        table, seen = _Table(), 0
        for block in itertools.chain(_forward(file, head, end), _last_line(file, head, end, rest)):
            piece = read_block(block, head.form)
            seen += len(block)
            table.add(piece, 1.01 * (table.count + piece.count) * (end - head.end) / seen)
    return table.done(path)


def newest(path: Path, n: int = 100, *, holding: str = "") -> Rows:
    """The last `n` rows, as `read` gives them, without reading what is before them. Raises as `read` does.

    Args:
        holding: only rows whose line contains this text; this takes a hundredth of the time of reading the others.
    """
    with _open(path) as file:
        head = read_head(file, path)
        end, rest = ending(file, head)
        pieces = [read_block(block, head.form) for block in _last_line(file, head, end, rest)]
        for block in backward(file, head, end, max(TAIL, 1024 * n)):
            # Read from the end, so that of a file of years only the last blocks are looked at.
            if holding and holding.encode() not in block:
                continue
            pieces.insert(0, read_block(_lines_with(holding, block) if holding else block, head.form))
            if sum(piece.count for piece in pieces) >= n:
                break
    table = _Table()
    for piece in pieces:
        table.add(piece)
    rows = table.done(path)
    return rows[max(0, len(rows) - n) :]


def _lines_with(text: str, block: bytes) -> bytes:
    wanted = text.encode()
    return b"".join(line for line in block.splitlines(keepends=True) if wanted in line)


def is_ours(path: Path) -> bool:
    """Is this the CSV file of a test? `.benchmarks` is shared with other tools."""
    try:
        with path.open("rb") as file:
            return file.read(64).lstrip(_BOM).startswith(MAGIC.encode())
    except OSError:
        return False


# ---- header -----------------------------------------------------------------------------------------------------

_BOM = b"\xef\xbb\xbf"


def read_head(file: BinaryIO, path: Path) -> Head:
    """Reads up to the first row.

    Raises:
        FormatError: this is not the CSV file of a test, or a newer benchax wrote it.
    """
    comments: list[str] = []
    end = 0
    row = ""
    is_ended = True
    for line in file:
        text = line.lstrip(_BOM).decode("utf-8", "surrogateescape").rstrip("\r\n")
        if text.strip() and not text.startswith("#"):
            row = text
            break
        is_ended = line.endswith(b"\n")
        end += len(line)
        comments.append(text)
    # A header that ends within a line may be the work of a kill, so it is not believed.
    form = (form_of(comments, str(path)) if is_ended else None) or _form_of_row(row)
    if not form and not is_beginning(comments, row):
        raise FormatError(
            f"{path} is not the CSV file of a test: it begins with {(comments or [row])[0][:60]!r}",
            f"a file that begins with {MAGIC!r}",
        )
    return Head(comments, form, end)


def is_beginning(comments: Sequence[str], row: str = "") -> bool:
    """Is this a header of ours, or the beginning of one, as a kill or a full disk may leave it?"""
    first = comments[0] if comments else row
    return first.startswith(MAGIC) or (len(comments) < 2 and not row.strip() and MAGIC.startswith(first.rstrip("\0")))


def _form_of_row(row: str) -> LineForm | None:
    """Where the header was lost, the number of columns tells."""
    number = len(words_of(row))
    return CURRENT if number == len(CURRENT.columns) else OLD.get(number)


# ---- blocks of whole lines --------------------------------------------------------------------------------------


def ending(file: BinaryIO, head: Head) -> tuple[int, bytes]:
    """Returns (where the last whole line ends, the bytes after it)."""
    size = file.seek(0, os.SEEK_END)
    span = 4096
    while True:
        start = max(head.end, size - span)
        file.seek(start)
        _, newline, rest = file.read(size - start).rpartition(b"\n")
        if newline or start == head.end:
            return size - len(rest), rest
        span *= 16


def backward(file: BinaryIO, head: Head, end: int, first: int | None = None) -> Iterator[bytes]:
    """The lines before `end` in blocks, the last ones first; within a block as in the file."""
    span, behind = first or TAIL, b""
    while end > head.end:
        start = max(head.end, end - span)
        file.seek(start)
        lines = file.read(end - start) + behind
        if start > head.end:
            # The first line may begin before this block. It belongs to the next one.
            line, newline, lines = lines.partition(b"\n")
            behind = line + newline
        if lines:
            yield lines
        end, span = start, _BLOCK // 4


def _forward(file: BufferedReader, head: Head, end: int) -> Iterator[memoryview]:
    """All lines before `end`. A block is valid until the next one."""
    file.seek(head.end)
    left, kept = end - head.end, 0
    buffer = bytearray(min(_BLOCK, left))
    while left:
        if kept == len(buffer):
            buffer += bytes(len(buffer))  # one line is longer
        got = file.readinto(memoryview(buffer)[kept : kept + left])
        if not got:
            break  # the file has become shorter
        left, filled = left - got, kept + got
        cut = buffer.rfind(b"\n", 0, filled) + 1
        if cut:
            yield memoryview(buffer)[:cut]
        buffer[: filled - cut] = buffer[cut:filled]
        kept = filled - cut


def _last_line(file: BinaryIO, head: Head, end: int, line: bytes) -> Iterator[bytes]:
    """Yields the last line if no line break ends it. It yields nothing if there is no such line, or if it is cut
    off."""
    if not line:
        return
    # Perhaps a writer is at it right now.
    with contextlib.suppress(OSError, StoreError):
        wait_for(file.fileno(), str(file.name))
        flock(file.fileno(), LOCK_UN)
        file.seek(end)
        line = file.readline() or line
    if line.endswith(b"\n") or is_whole(line.decode("utf-8", "surrogateescape"), head.form):
        yield line.rstrip(b"\n") + b"\n"
    elif line.strip(b"\0 ") and not line.startswith(b"#"):
        warnings.warn(f"{file.name}: the last line is cut off, and is left out", stacklevel=4)


@contextlib.contextmanager
def _open(path: Path) -> Generator[BufferedReader, None, None]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise StoreError(
            f"cannot read {path}: {error}", "the CSV file of a test, such as .benchmarks/…/main.csv"
        ) from error


# ---- the array --------------------------------------------------------------------------------------------------


class _Table:
    """Rows under construction: what is read goes to its place at once, or memory would hold everything twice."""

    def __init__(self) -> None:
        self.rows: Rows = np.zeros(0, [(n, "U1" if n in _FIXED_WIDTH else DTYPES[KINDS[n]]) for n in COLUMNS])
        self.count = 0
        self.damaged: list[str] = []

    def add(self, piece: Piece, expected: float = 0) -> None:
        """
        Args:
            expected: how many rows there will be in the end, as far as one can tell.
        """
        self.damaged += piece.damaged
        if not piece.count:
            return
        needed = self.count + piece.count
        types = [(name, self._type(name, piece)) for name in COLUMNS]
        if needed > len(self.rows) or self.rows.dtype != np.dtype(types):
            # Not np.empty, which puts None into each text of each row: 1 µs per row.
            wider = np.zeros(max(needed, len(self.rows), int(expected)), types)
            for name in COLUMNS:
                wider[name][: self.count] = self.rows[name][: self.count]
            self.rows = wider
        rows = self.rows[self.count : needed]
        # So few rows at a time stay in the caches while one column after the other is written into them.
        for few in (slice(start, start + _FEW) for start in range(0, piece.count, _FEW)):
            for name, values in piece.columns.items():
                rows[name][few] = values[few] if isinstance(values, np.ndarray) else values
        self.count = needed

    def done(self, path: Path) -> Rows:
        if self.damaged:
            lines = "1 damaged line is" if len(self.damaged) == 1 else f"{len(self.damaged)} damaged lines are"
            example = " ".join(self.damaged[0].split())[:80]
            warnings.warn(f"{path}: {lines} left out, such as {example!r}", stacklevel=3)
        return self.rows[: self.count]

    def _type(self, name: str, piece: Piece) -> Any:
        known = self.rows.dtype[name]
        if name not in _FIXED_WIDTH or known.kind == "O":
            return DTYPES[KINDS[name]]
        width = fixed_width(piece.columns[name])
        return f"U{max(width, known.itemsize // 4)}" if width else np.object_


def fixed_width(texts: str | npt.NDArray[Any]) -> int:
    """How wide the fixed-width texts of NumPy have to be to hold these; 0 if they should be objects."""
    if isinstance(texts, np.ndarray) and texts.dtype.kind == "U":
        return texts.dtype.itemsize // 4
    each: list[str] = [texts] if isinstance(texts, str) else texts.tolist()
    longest = max(1, *map(len, each))
    # NumPy pads with NUL, and would take one at the end for padding.
    return longest if longest <= _WIDEST and "\0" not in "".join(each) else 0
