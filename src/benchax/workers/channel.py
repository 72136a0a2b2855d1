"""Messages between processes over a Unix socket: JSON, with bytes and file descriptors.

A frame is a header, a JSON object and sections of bytes. Small sections travel in the frame. Larger ones are all in one
memory file (`memfd_create`; elsewhere an unlinked temporary file), whose descriptor travels instead. 64 MiB took 158 ms
through a socket, and 22 ms through a memory file (two copies).

Nothing waits in a hidden buffer: `pop` gives every message that is complete, and only when it has none does a caller
wait for the socket. (A buffered reader and `select` together lose messages: the second message waits in the buffer
while `select` reports no data.) A sender that stops in the middle of a frame blocks no other process.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import pickle
import select
import socket
import struct
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import jax
import numpy as np
import psutil

from benchax import json_values
from benchax.measuring.state import data_of
from benchax.units import size as size_text

Bytes = bytes | bytearray | memoryview | pickle.PickleBuffer

_HEADER = struct.Struct("!4sBIQ")
_MAGIC = b"bnx1"
IN_FRAME_BYTES = 64 * 2**10
"""Sections up to this many bytes together travel in the frame. Less than a socket takes in without being read."""
_MAX_FRAME_BYTES = 64 * 2**20
_CHECKED_BYTES = 64 * 2**20
_MOST_FDS = 8
LONGEST_POLL_S = 1e6
"""A poll longer than 2**31 - 1 ms, which are 24.8 days, cannot be asked for. No limit is longer than this."""


class Closed(Exception):
    """The other end is gone."""


class Garbled(Exception):
    """The received data is not a frame of benchax: something else wrote to the socket."""


class TooLate(Exception):
    """The other end did not take the message in time."""


@dataclass(frozen=True)
class Message:
    document: dict[str, Any]
    sections: tuple[memoryview, ...] = ()
    fds: tuple[int, ...] = ()
    """The receiver closes them."""


@dataclass
class Channel:
    """One end of a connection. Not for several threads at a time."""

    sock: socket.socket
    received: bytearray = field(default_factory=bytearray)
    fds: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sock.setblocking(False)

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
            TooLate: it did not take the message within `timeout_s`.
            MemoryError: there is no room for the sections.
        """
        views = [memoryview(section).cast("B") for section in sections]
        total = sum(view.nbytes for view in views)
        is_beside = total > IN_FRAME_BYTES
        text = json.dumps({"message": document, "sizes": [view.nbytes for view in views], "is_beside": is_beside})
        with _memory_file(views, total) if is_beside else nullcontext() as beside:
            every = [*fds, beside.fileno()] if beside else fds
            header = _HEADER.pack(_MAGIC, len(every), len(text), 0 if beside else total)
            frame = b"".join([header, text.encode("ascii"), *(() if beside else views)])
            self._push(frame, every, None if timeout_s is None else monotonic() + timeout_s)

    def _push(self, frame: bytes, fds: Sequence[int], until: float | None) -> None:
        rest = memoryview(frame)
        while rest:
            try:
                sent = socket.send_fds(self.sock, [rest], fds) if fds else self.sock.send(rest)
            except BlockingIOError:
                if not _poll([self.fileno()], select.POLLOUT, None if until is None else until - monotonic()):
                    raise TooLate from None
                continue
            except OSError as error:  # broken pipe, reset, or closed by the user's own code
                raise Closed from error
            # The descriptors were sent with the first bytes. Sent again with the rest, they would arrive twice.
            rest, fds = rest[sent:], []

    def take(self) -> None:
        """Takes in what has arrived, without waiting. Raises `Closed` at its end."""
        try:
            data, fds, _, _ = socket.recv_fds(self.sock, 2**16, _MOST_FDS)
        except (BlockingIOError, InterruptedError):
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
        magic, fd_count, text_length, rest_length = _HEADER.unpack_from(self.received)
        length = text_length + rest_length
        if magic != _MAGIC or length > _MAX_FRAME_BYTES or len(self.fds) < fd_count:
            raise Garbled
        if len(self.received) < _HEADER.size + length:
            return None
        body = bytes(self.received[_HEADER.size : _HEADER.size + length])
        del self.received[: _HEADER.size + length]
        fds, self.fds = self.fds[:fd_count], self.fds[fd_count:]
        return _message(body, text_length, fds)

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


def wait_readable(sources: Iterable[Any], timeout_s: float | None) -> list[Any]:
    """Returns the `sources` that can be read or have ended; empty after `timeout_s`. Has no limit on descriptor
    numbers.
    """
    by_fd = {source if isinstance(source, int) else source.fileno(): source for source in sources}
    return [by_fd[fd] for fd in _poll(by_fd, select.POLLIN, timeout_s)]


def _poll(fds: Iterable[int], event: int, timeout_s: float | None) -> list[int]:
    """Returns those for which `event` has come; empty after `timeout_s`."""
    poll = select.poll()
    for fd in fds:
        poll.register(fd, event)
    # Python rounds milliseconds up, so a deadline is never reached too early.
    return [fd for fd, _ in poll.poll(None if timeout_s is None else 1000 * min(max(0.0, timeout_s), LONGEST_POLL_S))]


def _message(body: bytes, text_length: int, fds: list[int]) -> Message:
    envelope = json.loads(body[:text_length])
    sizes = envelope["sizes"]
    if not envelope["is_beside"]:
        content, ends = memoryview(bytearray(body[text_length:])), itertools.accumulate(sizes, initial=0)
        return Message(envelope["message"], tuple(content[a:b] for a, b in itertools.pairwise(ends)), tuple(fds))
    try:
        with os.fdopen(fds.pop(), "rb") as beside:
            if os.fstat(beside.fileno()).st_size != sum(sizes):
                raise Garbled
            require_free_memory(sum(sizes))
            # Copy into memory of this process: shared pages would behave differently in timings, and the other side
            # could truncate them.
            sections = [np.empty(size, np.uint8).data for size in sizes]
            beside.seek(0)  # the writer has left the position at the end
            for section in sections:
                beside.readinto(section)
    except BaseException:
        _close(fds)
        raise
    return Message(envelope["message"], tuple(sections), tuple(fds))


def _memory_file(views: Sequence[memoryview], total: int) -> Any:
    """A file that only its descriptor leads to, with the `views` in it."""
    require_free_memory(total)
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
