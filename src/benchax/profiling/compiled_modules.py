"""The compiled programs that a trace carries: of each instruction where it comes from, and its line of HLO.

JAX puts the optimised module of every program into the trace (plane `/host:metadata`, option `enable_hlo_proto`), as
the protobuf message HloProto. Only what a table of operations shows is read. Fields as in xla/service/hlo.proto and
xla/xla_data.proto; tried on what jax 0.10.2 writes. A module that cannot be read is left out: its operations then
have no scope.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from benchax.errors import FormatError
from benchax.profiling.space import Space
from benchax.protobuf import BYTES, VARINT, Field, fields, signed, varint
from benchax.source_files import is_library

T = TypeVar("T")
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


@dataclass(frozen=True)
class CompiledModule:
    """A compiled module: its instructions by name, those of all its computations."""

    name: str
    instructions: Mapping[str, ModuleInstruction]
    computations: Mapping[str, tuple[str, ...]]
    """Name → names of its instructions."""

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
    """Program id → program, as far as the trace has them."""
    plane = space.plane(PLANE)
    found: dict[int, CompiledModule] = {}
    for blobs in plane.blobs.values() if plane else ():
        for name_id, blob in blobs.items():
            named = _NAMED.fullmatch(plane.names.get(name_id, "")) if plane else None
            try:
                program = _program(blob)
            except FormatError:  # of a version to come; what is known of the operations is shown without it
                continue
            if named and program:
                found[int(named["program"])] = program
    return found


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
    sources: Callable[[int], str] = lambda frame: ""  # noqa: E731
    for part in fields(data, module.start, module.end):
        if part.number == 1:
            name = _text(data, part)
        elif part.number == 3:
            number, title, found = _computation(data, part)
            computations[number] = title
            members[title] = tuple(one.name for one in found)
            raw += found
        elif part.number == 17:
            sources = _Frames(data, part).source
    names = {instruction.number: instruction.name for instruction in raw}
    read = (_instruction(data, one, names, computations, sources) for one in raw)
    return CompiledModule(name, {instruction.name: instruction for instruction in read}, members)


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
    data: bytes, raw: _Raw, names: Mapping[int, str], computations: Mapping[int, str], sources: Callable[[int], str]
) -> ModuleInstruction:
    scope, source = _origin(data, raw.metadata, sources) if raw.metadata else ("", "")
    operands = ", ".join(f"%{names.get(number, '?')}" for number in raw.operands)
    kind = f", kind={raw.kind}" if raw.kind and raw.opcode == "fusion" else ""
    called = tuple(computations.get(number, "?") for number in raw.called)
    calls = f", calls={', '.join(f'%{name}' for name in called)}" if called else ""
    hlo = f"%{raw.name} = {raw.shape} {raw.opcode}({operands}){kind}{calls}"
    return ModuleInstruction(raw.name, raw.opcode, raw.shape, scope, source, hlo, called)


def _origin(data: bytes, metadata: Field, sources: Callable[[int], str]) -> tuple[str, str]:
    """(named scopes, file:line) of OpMetadata."""
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
    return scope, f"{file}:{line}" if file else sources(frame)


class _Frames:
    """Where frames lie: JAX 0.7 and newer write the place once and refer to it by number (StackFrameIndexProto)."""

    def __init__(self, data: bytes, index: Field) -> None:
        self.files: list[str] = []
        self.places: list[dict[int, int]] = []
        self.frames: list[dict[int, int]] = []
        self.known: dict[int, str] = {}
        for part in fields(data, index.start, index.end):
            if part.number == 1:
                self.files.append(_text(data, part))
            elif part.number in (3, 4):
                numbers = {f.number: f.value for f in fields(data, part.start, part.end) if f.wire == VARINT}
                (self.places if part.number == 3 else self.frames).append(numbers)

    def source(self, frame: int) -> str:
        """file:line of the innermost frame of the user's own files, or of the innermost one. Numbers count from 1."""
        if frame not in self.known:
            lines: list[tuple[str, int]] = []
            at = frame
            while 0 < at <= len(self.frames) and len(lines) < len(self.frames):
                place = _item(self.places, self.frames[at - 1].get(1, 0), {})
                lines.append((_item(self.files, place.get(1, 0), ""), place.get(3, 0)))
                at = self.frames[at - 1].get(2, 0)
            own = [line for line in lines if line[0] and not is_library(line[0])]
            file, number = (own or lines or [("", 0)])[0]
            self.known[frame] = f"{file}:{number}" if file else ""
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
    """A repeated number, which is packed into bytes or stands alone."""
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
