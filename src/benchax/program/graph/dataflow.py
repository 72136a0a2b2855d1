"""A compiled program as boxes and arrows. Reads HLO text, and decides nothing about geometry.

    a box      an instruction. A fusion is one box that lists its content, or is opened (`expand_fusions`). A loop
               or a branch is a box that holds the boxes of its computations.
    an arrow   a value. Tuples and their elements are arrows, not boxes: they move nothing.
    in a box   the scalar constants that it reads, the operation of a reduction, the trip count of a loop.

A program of more than `limit` boxes is cut. The outermost computation comes first, in the order of its text, then the
inner ones as far as the limit reaches. The omitted boxes are counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from benchax.program import hlo
from benchax.program.graph import labels
from benchax.program.graph.labels import Role
from benchax.program.hlo import Computation, Instruction, Module

_HOLD_OTHERS = ("while", "conditional", "call", "async-start")
_READ_WHOLE = ("tuple", *_HOLD_OTHERS)
"""Readers of a constant that have no place to show its value."""


@dataclass(frozen=True)
class Box:
    """`number` is unique in the picture, from 1."""

    number: int
    role: Role
    title: str
    lines: tuple[str, ...] = ()
    details: str = ""
    """Longer text, to be shown on demand."""
    parts: tuple[NestedComputation, ...] = ()


@dataclass(frozen=True)
class Dataflow:
    """The boxes of one computation, and pairs (from, to) of places in `boxes` where a value goes."""

    boxes: tuple[Box, ...]
    arrows: tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class NestedComputation:
    """One computation inside of a box: the body of a loop, a branch, an opened fusion."""

    title: str
    flow: Dataflow


@dataclass(frozen=True)
class ProgramDrawing:
    flow: Dataflow
    instructions: int
    """In the whole text, those inside of fusions included."""
    computations: int
    drawn: int
    """Boxes, inner ones included."""
    left_out: int
    """Boxes that `limit` cut off, at least: what is inside of those is not looked at."""


def program(hlo_text: str, *, expand_fusions: bool = False, limit: int = 2000) -> ProgramDrawing:
    """Reads the text; an empty program where it has no ENTRY computation."""
    module = hlo.parse(hlo_text)
    reader = _DataflowReader(module, frozenset(hlo.aliased_parameters(hlo_text)), expand_fusions, limit)
    flow = reader.flow(module.entry, frozenset(), is_entry=True) if module.entry else Dataflow((), ())
    instructions = sum(len(c.instructions) for c in module.computations.values())
    return ProgramDrawing(flow, instructions, len(module.computations), reader.drawn, reader.left_out)


class _DataflowReader:
    def __init__(self, module: Module, reused: frozenset[int], expand_fusions: bool, limit: int) -> None:
        self.module = module
        self.reused = {f"({number})" for number in reused}
        self.holders = (*_HOLD_OTHERS, "fusion") if expand_fusions else _HOLD_OTHERS
        self.limit = limit
        self.drawn = 0
        self.left_out = 0

    def flow(self, computation: Computation, around: frozenset[str], *, is_entry: bool) -> Dataflow:
        wiring = _Wiring(computation)
        boxed = wiring.make_boxes()
        taken = boxed[: max(self.limit - self.drawn, 0)]
        has_output = len(taken) == len(boxed) and wiring.root is not None
        self.left_out += len(boxed) - len(taken)
        first = self.drawn + 1
        self.drawn += len(taken) + has_output
        around |= {computation.name}
        boxes = [self.box(i, number, wiring, around, is_entry) for number, i in enumerate(taken, first)]
        place = {i.name: n for n, i in enumerate(taken)}
        # Dicts in place of sets, which have no order: the picture of one program is always the same text.
        arrows = {(place[s], place[i.name]): None for i in taken for s in wiring.sources(i) if s in place}
        if has_output and wiring.root is not None:
            arrows |= {(place[s], len(boxes)): None for s in wiring.outputs() if s in place}
            boxes.append(Box(first + len(taken), "output", "output", labels.shape_lines(wiring.root.shape)))
        return Dataflow(tuple(boxes), tuple(arrows))

    def box(self, found: Instruction, number: int, wiring: _Wiring, around: frozenset[str], is_entry: bool) -> Box:
        called = [(key, c) for key, c in self.module.called_computations(found) if c.name not in around]
        label = labels.label(found, called, is_entry=is_entry, constants=wiring.constants(found))
        lines, parts = list(label.lines), ()
        if is_entry and found.opcode == "parameter" and found.operands in self.reused:
            lines.append("an output takes its memory")
        if found.opcode in self.holders and called:
            inside = sum(len(c.instructions) for _, c in called)
            if self.drawn < self.limit:
                parts = tuple(
                    NestedComputation(title, self.flow(c, around, is_entry=False)) for title, c in labels.parts(called)
                )
            else:
                self.left_out += inside
                lines.append(f"{inside} instructions inside, not drawn")
        return Box(number, label.role, label.title, tuple(lines), label.details, parts)


class _Wiring:
    """Which instructions of a computation are boxes, and from which of them each reads."""

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.root = computation.root
        self.operands = {i.name: computation.operands(i) for i in computation.instructions}
        self.plain = self._described_in_readers()
        self.taken_apart = {
            operands[0].name
            for i in computation.instructions
            if i.opcode == "get-tuple-element" and (operands := self.operands[i.name])
        }

    def _described_in_readers(self) -> set[str]:
        small = {i.name for i in self.computation.instructions if labels.is_scalar_constant(i)}
        for reader in self.computation.instructions:
            if reader.opcode in _READ_WHOLE or reader.opcode == "get-tuple-element":
                small -= {o.name for o in self.operands[reader.name]}
        return small - ({self.root.name} if self.root else set())

    def make_boxes(self) -> list[Instruction]:
        return [i for i in self.computation.instructions if self.is_box(i)]

    def is_box(self, found: Instruction) -> bool:
        if found.opcode == "get-tuple-element":
            return self.is_input(found)
        if found.opcode == "parameter":
            return not (found.shape.startswith("(") and found.name in self.taken_apart)
        return found.opcode != "tuple" and found.name not in self.plain

    def is_input(self, found: Instruction) -> bool:
        """One of the values that a computation is given in a tuple."""
        return found.opcode == "get-tuple-element" and any(o.opcode == "parameter" for o in self.operands[found.name])

    def sources(self, reader: Instruction) -> Iterator[str]:
        """Boxes whose values it reads; each perhaps more than once."""
        todo = [] if self.is_input(reader) else list(self.operands[reader.name])
        while todo:
            read = todo.pop(0)
            if self.is_box(read):
                yield read.name
            elif read.opcode in ("tuple", "get-tuple-element"):
                todo = self.operands[read.name] + todo

    def outputs(self) -> Iterator[str]:
        if self.root is None:
            return iter(())
        return iter([self.root.name]) if self.is_box(self.root) else self.sources(self.root)

    def constants(self, reader: Instruction) -> list[str]:
        """The values of scalar constants that it reads."""
        return [o.operands[1:-1] for o in self.operands[reader.name] if o.name in self.plain]
