"""The compiled programs that a trace carries: of each instruction where it comes from, and its line of HLO.

JAX puts the optimised module of every program into the trace (plane `/host:metadata`, option `enable_hlo_proto`), as
the protobuf message HloProto. Only what a table of operations shows is read. Fields as in xla/service/hlo.proto and
xla/xla_data.proto; tried on what jax 0.10.2 writes. A module that cannot be read is left out: its operations then
have no scope.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import numpy as np

from benchax.errors import FormatError
from benchax.profiling.space import Space
from benchax.protobuf import BYTES, VARINT, Field, fields, signed, varint
from benchax.source_files import is_library

T = TypeVar("T")
Stacks = Callable[[int], tuple[str, ...]]
PLANE = "/host:metadata"
_TYPES = (  # noqa: SIM905 (as a list this is a page)
    "invalid pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 tuple opaque c64 bf16 token c128 f8e5m2 f8e4m3fn s4 u4 "
    "f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz s2 u2 f8e4m3 f8e3m4 s1 u1 f4e2m1fn f8e8m0fnu"
).split()
"""PrimitiveType, by number."""
_TUPLE = 13
_NAMED = re.compile(r"(?P<module>.*)\((?P<program>-?\d+)\)")


class ModuleInstruction(NamedTuple):
    """One line of a program."""

    name: str
    opcode: str
    shape: str
    scope: str
    source: str
    hlo: str
    called: tuple[str, ...]
    """Computations that it runs, such as the body of a loop."""
    stack: tuple[str, ...] = ()
    """file:line of the user's frames, innermost first, including `source`; empty if the program has no frames."""


@dataclass(frozen=True)
class CompiledModule:
    """A compiled module: the instructions of all its computations, by name."""

    name: str
    instructions: Mapping[str, ModuleInstruction]
    computations: Mapping[str, tuple[str, ...]]
    """Name → names of its instructions."""
    proto: bytes = field(default=b"", repr=False)
    """All of it, as the trace has it (HloModuleProto)."""

    def inside(self, instruction: ModuleInstruction) -> set[str]:
        """Names of the instructions that it runs, at any depth."""
        found: set[str] = set()
        todo = list(instruction.called)
        seen: set[str] = set()
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            for inner in self.computations.get(name, ()):
                found.add(inner)
                todo += self.instructions[inner].called
        return found


def programs(space: Space) -> dict[int, CompiledModule]:
    """Program id → program, of those that ran, as far as the trace has them.

    The trace has every program that the process ever compiled: after a day in a notebook, thousands.
    """
    plane = space.plane(PLANE)
    ran = _ids_of_programs(space)
    found: dict[int, CompiledModule] = {}
    for blobs in plane.blobs.values() if plane else ():
        for name_id, blob in blobs.items():
            named = _NAMED.fullmatch(plane.names.get(name_id, "")) if plane else None
            if named is None or int(named["program"]) not in ran:
                continue
            with suppress(FormatError):  # of a version to come; what is known of the operations is shown without it
                if (program := _program(blob)) is not None:
                    found[int(named["program"])] = program
    return found


def _ids_of_programs(space: Space) -> set[int]:
    """Returns the ids of all programs that have an event."""
    numbers = [line.number("program_id") for plane in space.planes for line in plane.lines]
    return {int(number) for values, has in numbers for number in np.unique(values[has])}


def _program(proto: bytes) -> CompiledModule | None:
    """HloProto → its module."""
    for part in fields(proto, 0, len(proto)):
        if part.number == 1 and part.wire == BYTES:
            return _module(proto, part)
    return None


class _Raw(NamedTuple):
    """An instruction before names replace numbers."""

    name: str
    opcode: str
    shape: str
    metadata: Field | None
    number: int
    operands: list[int]
    called: list[int]
    kind: str


def _module(data: bytes, module: Field) -> CompiledModule:
    name = ""
    computations: dict[int, str] = {}
    members: dict[str, tuple[str, ...]] = {}
    raw: list[_Raw] = []
    stacks: Stacks = lambda frame: ()  # noqa: E731
    for part in fields(data, module.start, module.end):
        if part.number == 1:
            name = _text(data, part)
        elif part.number == 3:
            number, title, found = _computation(data, part)
            computations[number] = title
            members[title] = tuple(one.name for one in found)
            raw += found
        elif part.number == 17:
            stacks = _Frames(data, part).stack
    names = {instruction.number: instruction.name for instruction in raw}
    read = (_instruction(data, one, names, computations, stacks) for one in raw)
    return CompiledModule(
        name, {instruction.name: instruction for instruction in read}, members, data[module.start : module.end]
    )


def _computation(data: bytes, computation: Field) -> tuple[int, str, list[_Raw]]:
    number, name = 0, ""
    raw: list[_Raw] = []
    for part in fields(data, computation.start, computation.end):
        if part.number == 1:
            name = _text(data, part)
        elif part.number == 2:
            raw.append(_raw(data, part))
        elif part.number == 5:
            number = part.value
    return number, name, raw


def _raw(data: bytes, instruction: Field) -> _Raw:
    words = {1: "", 2: "", 11: ""}
    shape, metadata, number = "", None, 0
    operands: list[int] = []
    called: list[int] = []
    for part in fields(data, instruction.start, instruction.end):
        if part.number in words:
            words[part.number] = _text(data, part)
        elif part.number == 3:
            shape = _shape(data, part)
        elif part.number == 7:
            metadata = part
        elif part.number == 35:
            number = part.value
        elif part.number == 36:
            operands += _numbers(data, part)
        elif part.number == 38:
            called += _numbers(data, part)
    return _Raw(words[1], words[2], shape, metadata, number, operands, called, words[11])


def _instruction(
    data: bytes, raw: _Raw, names: Mapping[int, str], computations: Mapping[int, str], stacks: Stacks
) -> ModuleInstruction:
    scope, stack = _origin(data, raw.metadata, stacks) if raw.metadata else ("", ())
    operands = ", ".join(f"%{names.get(number, '?')}" for number in raw.operands)
    kind = f", kind={raw.kind}" if raw.kind and raw.opcode == "fusion" else ""
    called = tuple(computations.get(number, "?") for number in raw.called)
    calls = f", calls={', '.join(f'%{name}' for name in called)}" if called else ""
    hlo = f"%{raw.name} = {raw.shape} {raw.opcode}({operands}){kind}{calls}"
    source = stack[0] if stack else ""
    return ModuleInstruction(raw.name, raw.opcode, raw.shape, scope, source, hlo, called, stack)


def _origin(data: bytes, metadata: Field, stacks: Stacks) -> tuple[str, tuple[str, ...]]:
    """(named scopes, file:line of the user's frames) of OpMetadata."""
    scope, file, line, frame = "", "", 0, 0
    for part in fields(data, metadata.start, metadata.end):
        if part.number == 2:
            scope = _text(data, part)
        elif part.number == 3:
            file = _text(data, part)
        elif part.number == 4:
            line = part.value
        elif part.number == 15:
            frame = part.value
    return scope, (f"{file}:{line}",) if file else stacks(frame)


class _Frames:
    """The places of frames: JAX 0.7 and newer write the place once and refer to it by number (StackFrameIndexProto)."""

    def __init__(self, data: bytes, index: Field) -> None:
        self.files: list[str] = []
        self.places: list[dict[int, int]] = []
        self.frames: list[dict[int, int]] = []
        self.known: dict[int, tuple[str, ...]] = {}
        for part in fields(data, index.start, index.end):
            if part.number == 1:
                self.files.append(_text(data, part))
            elif part.number in (3, 4):
                numbers = {f.number: f.value for f in fields(data, part.start, part.end) if f.wire == VARINT}
                (self.places if part.number == 3 else self.frames).append(numbers)

    def stack(self, frame: int) -> tuple[str, ...]:
        """file:line of the frames in the user's own files, innermost first, or of the innermost one. Numbers count
        from 1."""
        if frame not in self.known:
            lines: list[tuple[str, int]] = []
            at = frame
            while 0 < at <= len(self.frames) and len(lines) < len(self.frames):
                place = _item(self.places, self.frames[at - 1].get(1, 0), {})
                lines.append((_item(self.files, place.get(1, 0), ""), place.get(3, 0)))
                at = self.frames[at - 1].get(2, 0)
            own = [line for line in lines if line[0] and not is_library(line[0])]
            shown = own or lines[:1]
            self.known[frame] = tuple(f"{file}:{number}" for file, number in shown if file)
        return self.known[frame]


def _item(listed: Sequence[T], number: int, otherwise: T) -> T:
    return listed[number - 1] if 0 < number <= len(listed) else otherwise


def _shape(data: bytes, shape: Field) -> str:
    """f32[64,64]; of a tuple (s32[], f32[64])."""
    kind = 0
    sizes: list[int] = []
    parts: list[str] = []
    for part in fields(data, shape.start, shape.end):
        if part.number == 2:
            kind = part.value
        elif part.number == 3:
            sizes += _numbers(data, part)
        elif part.number == 4:
            parts.append(_shape(data, part))
    if kind == _TUPLE:
        return f"({', '.join(parts)})"
    return f"{_TYPES[kind] if kind < len(_TYPES) else '?'}[{','.join(map(str, sizes))}]"


def _numbers(data: bytes, part: Field) -> list[int]:
    """Reads a repeated number, either packed into bytes or single."""
    if part.wire == VARINT:
        return [signed(part.value)]
    found: list[int] = []
    at = part.start
    while at < part.end:
        value, at = varint(data, at, part.end)
        found.append(signed(value))
    return found


def _text(data: bytes, part: Field) -> str:
    return data[part.start : part.end].decode(errors="replace")
