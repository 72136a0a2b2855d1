"""Messages between processes over a Unix socket: JSON, with bytes and file descriptors.

A frame is a header and a JSON object. Bytes that come with it (sections) are in one memory file (`memfd_create`;
elsewhere an unlinked temporary file), whose descriptor travels. 64 MiB took 158 ms through a socket, and 22 ms through
a memory file (two copies).

Nothing waits in a hidden buffer: `pop` gives every message that is complete, and only when it has none does a caller
wait for the socket. (A buffered reader and `select` together lose messages: the second message waits in the buffer
while `select` reports no data.) A sender that stops in the middle of a frame blocks no other process.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import socket
import struct
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from multiprocessing import connection
from pathlib import Path
from time import monotonic
from typing import Any

import jax
import numpy as np
import psutil

from benchax import json_values
from benchax.static_leaves import data_of
from benchax.units import size as size_text

Bytes = bytes | bytearray | memoryview | pickle.PickleBuffer

_HEADER = struct.Struct("!4sBI")
_MAGIC = b"bnx2"
_MAX_FRAME_BYTES = 64 * 2**20
_CHECKED_BYTES = 64 * 2**20
_MOST_FDS = 8
LONGEST_POLL_S = 1e6
"""A poll longer than 2**31 - 1 ms, which are 24.8 days, cannot be asked for. No limit is longer than this."""


class Closed(Exception):
    """The other end is gone."""


class Garbled(Exception):
    """The received data is not a frame of benchax: something else wrote to the socket."""


@dataclass(frozen=True)
class Message:
    document: dict[str, Any]
    sections: tuple[memoryview, ...] = ()
    fds: tuple[int, ...] = ()
    """The receiver closes them."""


@dataclass
class Channel:
    """One end of a connection. One thread can send while another one receives."""

    sock: socket.socket
    received: bytearray = field(default_factory=bytearray)
    fds: list[int] = field(default_factory=list)

    def fileno(self) -> int:
        return self.sock.fileno()

    def close(self) -> None:
        self.sock.close()
        _close(self.fds)
        self.fds.clear()

    def send(
        self,
        document: dict[str, Any],
        sections: Sequence[Bytes] = (),
        fds: Sequence[int] = (),
        timeout_s: float | None = None,
    ) -> None:
        """Sends the whole message.

        Raises:
            Closed: the other end is gone.
            TimeoutError: it did not take the message within `timeout_s`.
            MemoryError: there is no room for the sections.
        """
        views = [pickle.PickleBuffer(section).raw() for section in sections]
        text = json.dumps({"message": document, "sizes": [view.nbytes for view in views]}).encode("ascii")
        with _memory_file(views) if views else nullcontext() as beside:
            every = [*fds, beside.fileno()] if beside else fds
            frame = _HEADER.pack(_MAGIC, len(every), len(text)) + text
            try:
                self.sock.settimeout(timeout_s)
                # The descriptors travel with the first bytes. Sent again with the rest, they would arrive twice.
                sent = socket.send_fds(self.sock, [frame], every) if every else 0
                self.sock.sendall(memoryview(frame)[sent:])
            except (TimeoutError, BlockingIOError) as error:
                raise TimeoutError from error
            except OSError as error:  # broken pipe, reset, or closed by the user's own code
                raise Closed from error

    def take(self) -> None:
        """Takes in what has arrived, without waiting. Raises `Closed` at its end."""
        try:
            self.sock.setblocking(False)
            data, fds, _, _ = socket.recv_fds(self.sock, 2**16, _MOST_FDS)
        except BlockingIOError:
            return
        except OSError as error:
            raise Closed from error
        self.fds += fds
        if not data:
            raise Closed
        self.received += data

    def pop(self) -> Message | None:
        """The next complete message among what was taken in.

        Raises:
            Garbled: it is none of ours.
            MemoryError: there is no room for its sections.
        """
        if len(self.received) < _HEADER.size:
            return None
        magic, fd_count, length = _HEADER.unpack_from(self.received)
        if magic != _MAGIC or length > _MAX_FRAME_BYTES or len(self.fds) < fd_count:
            raise Garbled
        end = _HEADER.size + length
        if len(self.received) < end:
            return None
        envelope = json.loads(self.received[_HEADER.size : end])
        del self.received[:end]
        fds, self.fds = self.fds[:fd_count], self.fds[fd_count:]
        try:
            sections = _read_sections(fds.pop(), envelope["sizes"]) if envelope["sizes"] else ()
        except BaseException:
            _close(fds)
            raise
        return Message(envelope["message"], sections, tuple(fds))

    def receive(self, timeout_s: float | None = None) -> Message | None:
        """Returns the next message; None if none comes within `timeout_s`. Raises the errors of `take` and `pop`."""
        until = None if timeout_s is None else monotonic() + timeout_s
        while (message := self.pop()) is None:
            if not wait_readable([self], None if until is None else until - monotonic()):
                return None
            self.take()
        return message


def take_over_stdin() -> Channel:
    """Descriptor 0 becomes /dev/null: a function that asks for input gets none, instead of our messages."""
    control = Channel(socket.socket(fileno=os.dup(0)))
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    return control


def wait_readable(sources: Sequence[Any], timeout_s: float | None) -> list[Any]:
    """Returns the `sources` that can be read or have ended; empty after `timeout_s`. Has no limit on descriptor
    numbers, and is never too early.
    """
    return connection.wait(sources, None if timeout_s is None else min(max(0.0, timeout_s), LONGEST_POLL_S))


def _read_sections(fd: int, sizes: Sequence[int]) -> tuple[memoryview, ...]:
    with os.fdopen(fd, "rb") as beside:
        if os.fstat(fd).st_size != sum(sizes):
            raise Garbled
        require_free_memory(sum(sizes))
        # Copy into memory of this process: shared pages would behave differently in timings, and the other side could
        # truncate them.
        sections = tuple(np.empty(size, np.uint8).data for size in sizes)
        beside.seek(0)  # the writer has left the position at the end
        for section in sections:
            beside.readinto(section)
    return sections


def _memory_file(views: Sequence[memoryview]) -> Any:
    """A file that only its descriptor leads to, with the `views` in it."""
    require_free_memory(sum(view.nbytes for view in views))
    has_memfd = hasattr(os, "memfd_create")
    file = os.fdopen(os.memfd_create("benchax"), "wb") if has_memfd else tempfile.TemporaryFile(prefix="benchax-")  # noqa: SIM115
    try:
        file.writelines(views)
        file.flush()
    except BaseException:
        file.close()
        raise
    return file


def require_free_memory(nbytes: int) -> None:
    """Raises MemoryError if `nbytes` more would exhaust the machine's memory. The kernel grants memory that it does not
    have, and later kills any process."""
    if nbytes < _CHECKED_BYTES:
        return
    available = psutil.virtual_memory().available
    if nbytes > 0.9 * available:
        raise MemoryError(f"{size_text(nbytes)} to be sent, and only {size_text(available)} of memory are free")


def _close(fds: Iterable[int]) -> None:
    for fd in fds:
        with suppress(OSError):
            os.close(fd)


# ---- values ----------------------------------------------------------------------------------------------------------
#
# The return value of a task on its way back: JSON by the task's annotation (`json_values.py`), plus arrays and bytes.
#
# No part of an answer is unpickled: it comes from a process in which the user's code ran. JSON and plain bytes can be
# wrong, but do no harm.


_ARRAY, _BYTES, _SECTION = "$array", "$bytes", "section"


def pack(value: Any, hint: Any) -> list[Bytes]:
    """Sections of a message: the text, then the arrays and bytes that it refers to.

    Raises:
        TypeError: `value` is not what `hint` says, or holds what cannot travel, as an array of objects.
        MemoryError: there is no room for a copy of an array.
    """
    beside: list[Bytes] = []

    def put_beside(leaf: Any) -> dict[str, Any]:
        """json.dumps asks for everything that JSON has no word for."""
        if isinstance(leaf, bytes):
            beside.append(leaf)
            return {_BYTES: len(beside)}
        if not isinstance(leaf, np.ndarray | jax.Array):
            raise TypeError(f"Object of type {type(leaf).__name__} is not JSON serializable")
        # A typed PRNG key becomes its data.
        plain = np.asarray(data_of(leaf), order="C")
        # bfloat16 and similar types call themselves "<V2", which describes their bytes and not their meaning.
        name = plain.dtype.name if plain.dtype.kind == "V" else plain.dtype.str
        if _dtype(name) != plain.dtype:
            raise TypeError(f"an array of dtype {plain.dtype} cannot be sent from a worker process")
        beside.append(pickle.PickleBuffer(plain.reshape(-1).view(np.uint8).data))
        return {_ARRAY: {"dtype": name, "shape": plain.shape}, _SECTION: len(beside)}

    text = json.dumps(json_values.encode_value(value, hint), default=put_beside)
    return [text.encode("ascii"), *beside]


def unpack(sections: Sequence[memoryview], hint: Any) -> Any:
    """Inverse of `pack`; arrays are writable, over the memory of their sections.

    Raises:
        ValueError, KeyError, IndexError, TypeError, FormatError: what came is no answer of this kind.
    """

    def put_back(found: dict[str, Any]) -> Any:
        if _BYTES in found:
            return bytes(sections[found[_BYTES]])
        if _ARRAY in found:
            return rebuild_array(found[_ARRAY], sections[found[_SECTION]])
        return found

    return json_values.decode_value(json.loads(bytes(sections[0]), object_hook=put_back), hint)


def rebuild_array(description: Mapping[str, Any], content: memoryview) -> np.ndarray:
    """The array, writable, over the memory of `content`. Raises ValueError where these do not belong together."""
    dtype, shape = _dtype(description["dtype"]), tuple(description["shape"])
    if dtype is None or dtype.itemsize * math.prod(shape) != content.nbytes:
        raise ValueError(f"{content.nbytes} bytes aren't an array of dtype {dtype} and shape {shape}")
    return np.frombuffer(content, np.uint8).view(dtype).reshape(shape) if content.nbytes else np.empty(shape, dtype)


def _dtype(name: str) -> np.dtype | None:
    try:
        dtype = np.dtype(name)
    except TypeError:
        return None
    return None if dtype.hasobject or dtype.names else dtype
