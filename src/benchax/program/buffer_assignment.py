"""The buffer assignment of XLA: which piece of memory each value of a program is given, and from which byte on.

A protobuf message (xla/service/hlo.proto, BufferAssignmentProto) that `memory_analysis` hands out since jax 0.7; the
names of instructions come from the program itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax

from benchax.protobuf import VARINT, broken, fields, varint
from benchax.results.memory import BufferKind


class AssignedValue(NamedTuple):
    """A value in an allocation, for as long as it is needed. Others can have the same bytes before and after."""

    offset: int
    """Its first byte, from the beginning of the allocation."""
    size_bytes: int
    name: str
    """The name of the instruction that makes it; empty if the program does not have it."""
    index: tuple[int, ...]
    """Which part of a result that is a tuple, or a tuple of tuples."""


class Allocation(NamedTuple):
    """One piece of memory of the plan."""

    size_bytes: int
    kind: BufferKind
    parameter: int | None
    is_also_output: bool
    values: tuple[AssignedValue, ...]


Assignment = tuple[Allocation, ...]


def buffer_assignment(compiled: jax.stages.Compiled) -> Assignment | None:
    """The plan; None where it is not told, or is in another form than the one that is known here."""
    try:
        message = getattr(compiled.memory_analysis(), "serialized_buffer_assignment_proto", None)
        return read_assignment(message, _instruction_names(compiled)) if message else None
    except Exception:
        # An unstable, optional interface of XLA, or a message of another form. Harmless: the None is told.
        return None


def read_assignment(message: bytes, names: Mapping[int, str]) -> Assignment:
    """The allocations of a BufferAssignmentProto; those of single threads are no part of the plan's sums and left out.

    Args:
        names: of instructions by their ids.

    Raises:
        FormatError: not a message of protobuf.
    """
    made_by: dict[int, tuple[str, tuple[int, ...]]] = {}  # number of a value → the instruction that makes it, and index
    allocations: list[Allocation] = []
    # Walked twice, since protobuf promises no order: a buffer may stand before the values that it refers to.
    every = _fields(message)
    for number, value in every:
        if number == 1:
            logical = dict(_fields(value))
            made_by[logical.get(1, 0)] = _defined_at(_fields(logical.get(3, b"")), names)
    for number, value in every:
        if number == 3 and (allocation := _allocation(_fields(value), made_by)):
            allocations.append(allocation)
    return tuple(allocations)


def _defined_at(read: list[tuple[int, Any]], names: Mapping[int, str]) -> tuple[str, tuple[int, ...]]:
    """LogicalBufferProto.Location: 3 index into the shape (packed, or one by one), 4 id of the instruction."""
    index: list[int] = []
    for number, value in read:
        if number == 3:
            index += _varints(value) if isinstance(value, bytes) else [value]
    return names.get(dict(read).get(4, 0), ""), tuple(index)


def _varints(packed: bytes) -> list[int]:
    found: list[int] = []
    at = 0
    while at < len(packed):
        value, at = varint(packed, at, len(packed))
        found.append(value)
    return found


def _allocation(read: list[tuple[int, Any]], made_by: dict[int, tuple[str, tuple[int, ...]]]) -> Allocation | None:
    """Reads a BufferAllocationProto: 2 size, 3 thread-local, 5 parameter, 6 its number, 7 live out, 9 assigned, 12
    constant, 13 a parameter whose memory an output reuses. An assigned value has: 1 number of the value, 2 offset, 3
    size."""
    last = dict(read)
    if last.get(3):
        return None
    kind: BufferKind = (
        "argument" if last.get(5) else "constant" if last.get(12) else "output" if last.get(7) else "temporary"
    )
    assigned = [dict(_fields(value)) for number, value in read if number == 9]
    values = tuple(
        AssignedValue(each.get(2, 0), each.get(3, 0), *made_by.get(each.get(1, 0), ("", ()))) for each in assigned
    )
    parameter = last.get(6, 0) if kind == "argument" else None
    return Allocation(last.get(2, 0), kind, parameter, bool(last.get(7) or last.get(13)), values)


def _fields(message: Any) -> list[tuple[int, Any]]:
    """(number, value): a number, or bytes."""
    if not isinstance(message, bytes):
        raise broken(0, "a number in the place of a message")
    return [
        (field.number, field.value if field.wire == VARINT else message[field.start : field.end])
        for field in fields(message, 0, len(message))
    ]


def _instruction_names(compiled: jax.stages.Compiled) -> dict[int, str]:
    """Names by id, from HloModuleProto: 3 computations, in them 2 instructions, in them 1 name and 35 id."""
    try:
        module: Any = compiled.runtime_executable().hlo_modules()[0]  # type: ignore[union-attr]
        computations = [v for n, v in _fields(module.as_serialized_hlo_module_proto()) if n == 3]
        instructions = [dict(_fields(v)) for c in computations for n, v in _fields(c) if n == 2]
        return {each.get(35, 0): each[1].decode() for each in instructions}
    except Exception:
        # Documented as for debugging and unstable. Harmless: the buffers keep their sizes and have no names.
        return {}
