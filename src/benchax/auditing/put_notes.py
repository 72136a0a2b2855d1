"""Notes what a program puts on devices by name, line by line: how often, whether it was the same, whence and whither.

Told of each call of `jax.device_put`, `jnp.asarray` and `jnp.array` (`host_calls.py`).
"""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.core import Tracer

from benchax.auditing.put_contents import PutContents
from benchax.source_files import owner_of
from benchax.specs import spec_of
from benchax.watching.frames import user_line
from benchax.watching.signatures import describe_placement

SMALL_BYTES = 1 << 10
"""What is smaller costs as much as any call, and is not looked at."""
LARGE_BYTES = 1 << 20
"""What is smaller may well be on every device."""
MOST_PUTS = 2000
"""Places that put arrays on a device; each shape is another one."""


@dataclass
class PutLine:
    """What one line puts on a device, of one place in its arguments."""

    where: str
    by: str
    what: str
    count: int = 0
    repeats: int = 0
    """Times that it had the same contents as the time before."""
    copies_on_host: int = 0
    """Repeats that were another array, made anew."""
    size_bytes: int = 0
    elapsed_s: float = 0.0
    """That the host spent in it, of the repeats."""
    copies: int = 0
    """Times that each of several devices was given all of a large one."""
    devices: int = 1
    lies: str = ""
    """Where it lay last, on several devices."""
    moves: int = 0
    """Times that it was an array of JAX that lay otherwise."""
    moved_from: str = ""
    moved_to: str = ""


@dataclass
class ListLine:
    """A line that makes arrays of lists of Python numbers."""

    where: str
    by: str
    count: int = 0
    elements: int = 0
    elapsed_s: float = 0.0
    """That the host spent in it."""


class _PutPlace(NamedTuple):
    """Where an array is put on a device."""

    where: str
    by: str
    at: int
    """The instruction of that line."""
    leaf: int
    """Which one of the arguments' arrays."""
    what: str


class PutNotes:
    """What was seen of all of them so far."""

    def __init__(self) -> None:
        self.puts: dict[_PutPlace, PutLine] = {}
        self.lists: dict[tuple[str, str], ListLine] = {}
        self._last: dict[_PutPlace, PutContents] = {}

    def asdict(self) -> dict[str, Any]:
        return {
            "puts": [asdict(line) for line in self.puts.values()],
            "lists": [asdict(line) for line in self.lists.values()],
        }

    def note(self, by: str, given: Any, found: Any, elapsed_s: float) -> None:
        """What was given, what came of it, and how long that took the host."""
        if isinstance(given, list | tuple) and by != "device_put":
            self._note_list(by, given, found, elapsed_s)
        else:
            self._note_put(by, given, found, elapsed_s)

    def _note_list(self, by: str, given: Any, found: Any, elapsed_s: float) -> None:
        innermost = given
        while isinstance(innermost, list | tuple):
            innermost = innermost[0]
        where = user_line() if isinstance(innermost, int | float | complex) and not isinstance(found, Tracer) else None
        if where is not None:
            line = self.lists.setdefault((where, by), ListLine(where, by))
            line.count += 1
            line.elements += found.size
            line.elapsed_s += elapsed_s

    def _note_put(self, by: str, given: Any, found: Any, elapsed_s: float) -> None:
        leaves, made = jax.tree.leaves(given), jax.tree.leaves(found)
        if len(leaves) != len(made) or any(isinstance(leaf, Tracer) for leaf in made):
            return
        large = [i for i, leaf in enumerate(leaves) if getattr(leaf, "nbytes", 0) >= SMALL_BYTES]
        where = user_line() if large else None
        if where is None:
            return
        at = _position(sys._getframe(1))
        for i in large:
            # One line may put several arrays there, each by a call of its own, or one helper arrays of all kinds.
            place = _PutPlace(where, by, at, i, spec_of(leaves[i]))
            if place not in self.puts and len(self.puts) >= MOST_PUTS:
                continue
            line = self.puts.setdefault(place, PutLine(where, by, place.what))
            line.count += 1
            if len(made[i].sharding.device_set) > 1:
                line.lies = describe_placement(made[i].sharding)
            if leaves[i].nbytes >= LARGE_BYTES and made[i].sharding.is_fully_replicated:
                line.devices = len(made[i].sharding.device_set)
                line.copies += line.devices > 1
            if isinstance(leaves[i], np.ndarray):
                self._note_array(line, place, leaves[i], elapsed_s / len(large))
            elif isinstance(leaves[i], jax.Array) and not made[i].sharding.is_equivalent_to(
                leaves[i].sharding, leaves[i].ndim
            ):
                line.moves += 1
                line.elapsed_s += elapsed_s
                line.size_bytes += leaves[i].nbytes
                line.moved_from = describe_placement(leaves[i].sharding)
                line.moved_to = describe_placement(made[i].sharding)

    def _note_array(self, line: PutLine, place: _PutPlace, array: np.ndarray, elapsed_s: float) -> None:
        last = self._last.setdefault(place, PutContents())
        is_same_object = last.is_of(array)
        if last.repeat(array):
            line.repeats += 1
            line.copies_on_host += not is_same_object
            line.size_bytes += array.nbytes
            line.elapsed_s += elapsed_s


def _position(frame: FrameType | None) -> int:
    """The instruction that the user's nearest frame is at."""
    while frame is not None and owner_of(frame.f_code.co_filename) != "user":
        frame = frame.f_back
    return -1 if frame is None else frame.f_lasti
