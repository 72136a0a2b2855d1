"""The compiled programs that a trace carries: of each instruction where it comes from, and its line of HLO.

JAX puts the optimised module of every program into the trace (plane `/host:metadata`, option `enable_hlo_proto`), as
the protobuf message HloProto. Only what a table of operations shows is read. Fields as in xla/service/hlo.proto and
xla/xla_data.proto; tried on what jax 0.10.2 writes. A module that cannot be read is left out: its operations then
have no scope.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from benchax.errors import FormatError
from benchax.profiling.events import Space
from benchax.protobuf import ProtoMessage
from benchax.source_files import is_library

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
                for module in ProtoMessage(blob).messages(1):  # the only one of an HloProto
                    found[int(named["program"])] = _module(module)
    return found


def _ids_of_programs(space: Space) -> set[int]:
    """Returns the ids of all programs that have an event."""
    numbers = [line.number("program_id") for plane in space.planes for line in plane.lines]
    return {int(number) for values, has in numbers for number in np.unique(values[has])}


def _module(module: ProtoMessage) -> CompiledModule:
    computations = module.messages(3)
    raw = {one.text(1): one.messages(2) for one in computations}
    titles = {one.number(5): one.text(1) for one in computations}
    names = {one.number(35): one.text(1) for each in raw.values() for one in each}
    members = {title: tuple(one.text(1) for one in each) for title, each in raw.items()}
    frames = _Frames(next(iter(module.messages(17)), ProtoMessage(b"")))
    read = [_instruction(one, names, titles, frames) for each in raw.values() for one in each]
    proto = module.data[module.start : module.end]
    return CompiledModule(module.text(1), {instruction.name: instruction for instruction in read}, members, proto)


def _instruction(
    raw: ProtoMessage, names: Mapping[int, str], computations: Mapping[int, str], frames: _Frames
) -> ModuleInstruction:
    name, opcode, shape = raw.text(1), raw.text(2), ", ".join(map(_shape, raw.messages(3)))
    scope, stack = "", ()
    for origin in raw.messages(7):  # OpMetadata
        scope, file = origin.text(2), origin.text(3)
        stack = (f"{file}:{origin.number(4)}",) if file else frames.stack(origin.number(15))
    operands = ", ".join(f"%{names.get(number, '?')}" for number in raw.numbers(36))
    kind = f", kind={raw.text(11)}" if raw.text(11) and opcode == "fusion" else ""
    called = tuple(computations.get(number, "?") for number in raw.numbers(38))
    calls = f", calls={', '.join(f'%{name}' for name in called)}" if called else ""
    hlo = f"%{name} = {shape} {opcode}({operands}){kind}{calls}"
    return ModuleInstruction(name, opcode, shape, scope, stack[0] if stack else "", hlo, called, stack)


class _Frames:
    """The places of frames: JAX 0.7 and newer write the place once and refer to it by number (StackFrameIndexProto)."""

    def __init__(self, index: ProtoMessage) -> None:
        self.files = index.texts(1)
        self.places = [(one.number(1), one.number(3)) for one in index.messages(3)]
        """(number of the file, line)"""
        self.frames = [(one.number(1), one.number(2)) for one in index.messages(4)]
        """(number of the place, number of the frame around it)"""
        self.known: dict[int, tuple[str, ...]] = {}

    def stack(self, frame: int) -> tuple[str, ...]:
        """file:line of the frames in the user's own files, innermost first, or of the innermost one. Numbers count
        from 1."""
        if frame not in self.known:
            lines: list[tuple[str, int]] = []
            at = frame
            while 0 < at <= len(self.frames) and len(lines) < len(self.frames):
                place, at = self.frames[at - 1]
                file, line = self.places[place - 1] if 0 < place <= len(self.places) else (0, 0)
                lines.append((self.files[file - 1] if 0 < file <= len(self.files) else "", line))
            own = [line for line in lines if line[0] and not is_library(line[0])]
            self.known[frame] = tuple(f"{file}:{number}" for file, number in own or lines[:1] if file)
        return self.known[frame]


def _shape(shape: ProtoMessage) -> str:
    """f32[64,64]; of a tuple (s32[], f32[64])."""
    kind = shape.number(2)
    if kind == _TUPLE:
        return f"({', '.join(map(_shape, shape.messages(4)))})"
    return f"{_TYPES[kind] if 0 <= kind < len(_TYPES) else '?'}[{','.join(map(str, shape.numbers(3)))}]"
