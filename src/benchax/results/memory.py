"""The memory of one call as the compiler planned it: plain data, nothing was observed.

Buffers       buffer by buffer, largest first
PeakMemory    what of the temporaries is needed at one time, at most, and over the length of the program
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

BufferKind = Literal["argument", "output", "temporary", "constant", "other"]
Role = Literal["residual", "recomputed", "gradient", "temporary"]
"""A residual is made on the way forward and kept for the way back. A value that jax.checkpoint did not keep is
recomputed there; a gradient is any other value that is made there."""


@dataclass(frozen=True)
class HeldValue:
    """A value that the program keeps in a buffer for a while."""

    size_bytes: int
    name: str
    """The name of the instruction that makes it."""
    spec: str
    """f32[8,128]; empty where the program does not tell."""
    op_name: str = ""
    """As JAX tells XLA: jit(f)/dot_general."""
    source: str = ""
    """file:line; empty where the program does not tell."""

    @property
    def operation(self) -> str:
        """JAX's name for the operation, without the scopes around it: dot_general. Otherwise the name of the
        instruction."""
        return self.op_name.rpartition("/")[2] or self.name


@dataclass(frozen=True)
class Buffer:
    """A piece of memory in the compiler's plan."""

    size_bytes: int
    kind: BufferKind
    what: str
    """The path of an argument or output; else the largest value that it holds."""
    op_name: str = ""
    """The scope of the largest value, as its source."""
    source: str = ""
    values: tuple[HeldValue, ...] = ()
    """The largest values that it holds, first. They are not all held at one time, so their sum can exceed the size."""


@dataclass(frozen=True)
class Buffers:
    """The memory of one call, buffer by buffer, largest first."""

    buffers: tuple[Buffer, ...]
    method: Literal["buffer assignment", "program text"]
    """"program text": only arguments, outputs and constants, since the plan itself could not be read."""
    unattributed: tuple[tuple[BufferKind, int], ...] = ()
    """Bytes of the memory plan that no buffer here accounts for, by kind; empty where the sums agree."""


@dataclass(frozen=True)
class LiveValue(HeldValue):
    """A temporary value that is needed at the peak."""

    role: Role = "temporary"


@dataclass(frozen=True)
class PeakMemory:
    """The instruction at which most temporaries are needed at once, and what they are.

    Arguments, outputs and constants have memory for the whole call; only temporaries come and go.
    """

    live_bytes: int
    """The bytes of the temporaries that are needed then, each byte once."""
    planned_bytes: int
    """The bytes that the plan has for temporaries; the part beyond `live_bytes` is alignment and gaps."""
    at: HeldValue
    """The value that is made at the peak."""
    position: int
    """The number of that instruction in the order in which they run, from 0."""
    instructions: int
    values: tuple[LiveValue, ...]
    """Largest first."""
    timeline: tuple[int, ...]
    """Bytes that are needed, over the instructions in their order; the most in each of equal stretches."""

    def sum_of(self, role: Role) -> int:
        """Bytes of the values that have this role."""
        return sum(value.size_bytes for value in self.values if value.role == role)


def highest_of_stretches(sizes: Sequence[int], most: int) -> Iterator[int]:
    """The highest of each of `most` equal stretches, so that no peak is lost; all of them if they are fewer."""
    count = min(most, len(sizes))
    for i in range(count):
        yield max(sizes[i * len(sizes) // count : (i + 1) * len(sizes) // count])
