"""The messages between the server in a running program and its client, over loopback.

The client sends one line of JSON, `Ask`. The server answers with one line at once: it records, or it gives a reason why
not. After the recording, it sends a second line that names the files, and then their bytes, one file after the other.
Neither side trusts the data that arrives. Lines have a maximum length and a time limit, and keys and types are checked.
A file's name determines only its kind, so neither side chooses where the other writes.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from benchax.errors import FormatError, UsageError
from benchax.profiling.files import PATTERNS

HOST = "127.0.0.1"
"""The only address that is ever listened on: who can reach a profiler can read a program's code and slow it down."""
VERSION = 1
LEAST_S, MOST_S = 0.001, 60.0
"""The limits of one recording. A second of small programs on CPU is 300,000 events, in memory until it ends."""
LONGEST_LINE = 1 << 16
MOST_BYTES = 1 << 32
"""The maximum size of one file."""
PATIENCE_S = 10.0
"""For a line that is due at once."""
_PIECE = 1 << 20
_NAME = re.compile(r"[\w.-]{1,255}")


@dataclass(frozen=True)
class Ask:
    """The settings of a requested recording."""

    duration_s: float
    memory: bool = False
    """Also take readings of memory."""
    benchax: int = VERSION


@dataclass(frozen=True)
class StartOfRecording:
    """The first line of the server, where it records."""

    pid: int
    argv: list[str]
    benchax: int = VERSION


@dataclass(frozen=True)
class EndOfRecording:
    """The second line; the bytes of the files follow."""

    recorded: dict[str, Any]
    """As `program_recorder.Recorded`."""
    files: list[list[Any]] = field(default_factory=list)
    """Name and size in bytes."""


@dataclass(frozen=True)
class Refused:
    """The first or second line if there is no recording."""

    refused: str
    """Why, as a sentence without its full stop."""


def send(connection: socket.socket, said: Ask | StartOfRecording | EndOfRecording | Refused) -> None:
    connection.sendall(json.dumps(asdict(said)).encode() + b"\n")


def parse_request(line: bytes) -> Ask:
    """Reads a client's request.

    Raises:
        FormatError: the line is not a benchax request.
        UsageError: a value is invalid.
    """
    given = _document(line)
    if given.get("benchax") != VERSION:
        raise FormatError(f"this is benchax, which reads requests of version {VERSION}, and not {_short(line)}")
    _check_names(given, Ask)
    if not isinstance(given.get("memory", False), bool):
        raise UsageError(f"memory={given['memory']!r}", "true or false")
    return Ask(check_duration(given.get("duration_s")), given.get("memory", False))


def check_duration(value: Any) -> float:
    """Raises UsageError: no length of time that may be recorded."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not is_number or not LEAST_S <= value <= MOST_S:
        raise UsageError(
            f"a recording of {value!r} s of a running program", f"a number of seconds from {LEAST_S:g} to {MOST_S:g}"
        )
    return float(value)


def answer(line: bytes) -> StartOfRecording | EndOfRecording | Refused:
    """Reads a server's answer.

    Raises:
        FormatError: the line is not a benchax answer.
    """
    given = _document(line)
    for kind in (StartOfRecording, EndOfRecording, Refused):
        if {one.name for one in fields(kind)} == given.keys():
            return kind(**given)
    raise FormatError(f"an answer that benchax does not know: {_short(line)}")


def line_of(connection: socket.socket, patience_s: float | None = PATIENCE_S) -> bytes:
    """The next line, without reading behind it.

    Raises:
        FormatError: longer than a line may be, or cut.
        TimeoutError: it did not come in time; None waits as long as the connection lasts.
    """
    line = bytearray()
    until = math.inf if patience_s is None else time.monotonic() + patience_s
    while not line.endswith(b"\n"):
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        connection.settimeout(None if patience_s is None else left_s)
        # Peeked at first: what follows the line belongs to somebody else.
        seen = connection.recv(4096, socket.MSG_PEEK)
        end = seen.find(b"\n") + 1 or len(seen)
        if not seen or len(line) + end > LONGEST_LINE:
            raise FormatError(f"a line that was cut, or longer than {LONGEST_LINE} bytes: {_short(bytes(line + seen))}")
        line += connection.recv(end)
    return bytes(line)


def send_files(connection: socket.socket, files: Sequence[Path]) -> None:
    for file in files:
        with file.open("rb") as source:
            connection.sendfile(source)


def receive_files(connection: socket.socket, files: Sequence[Sequence[Any]], folder: Path) -> None:
    """Writes what follows into `folder`.

    Raises:
        FormatError: a name or a size that a profile does not have, or the connection ended before its time.
    """
    for name, size in [_check_file(file) for file in files]:
        left = size
        with (folder / name).open("wb") as target:
            while left:
                piece = connection.recv(min(_PIECE, left))
                if not piece:
                    raise FormatError(f"the program ended in the middle of {name}: {left} of {size} bytes are missing")
                target.write(piece)
                left -= len(piece)


def await_end(connection: socket.socket) -> None:
    """Until the other side hangs up: it is free for the next one only then, and would refuse who asks earlier."""
    connection.settimeout(PATIENCE_S)
    with contextlib.suppress(OSError):
        connection.recv(1)


def _check_file(file: Any) -> tuple[str, int]:
    match file:
        case [str(name), int(size)] if _NAME.fullmatch(name) and 0 <= size <= MOST_BYTES:
            if any(fnmatch(name, pattern) for pattern in PATTERNS.values()):
                return name, size
    raise FormatError(f"a file that no profile has: {str(file)[:80]}")


def _document(line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"benchax expects one line of JSON here, and not {_short(line)}") from error
    if not isinstance(found, dict):
        raise FormatError(f"benchax expects an object of JSON here, and not {_short(line)}")
    return found


def _check_names(given: Mapping[str, Any], kind: type) -> None:
    known = {one.name for one in fields(kind)}
    if unknown := given.keys() - known:
        raise UsageError(f"unknown keys {sorted(unknown)!r:.80}", f"some of: {', '.join(sorted(known))}")


def _short(line: bytes) -> str:
    return repr(line[:60])
