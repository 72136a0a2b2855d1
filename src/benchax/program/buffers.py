"""The compiler's memory plan, buffer by buffer: the purpose of each, its content, and the line that made it.

It comes from the buffer assignment (`buffer_assignment.py`). If that is missing, damaged or unexpected, the text of the
program still shows arguments, outputs and constants, and `method` says so. The rest of the plan is then listed as not
attributed.

The sums per kind are compared with `memory_plan`. benchax reports a part that no buffer accounts for, and never spreads
it out.

The user's line of an instruction comes from the text, without JAX. jax 0.6 writes `source_file="…" source_line=7` into
an instruction's metadata. Later versions write `stack_frame_id=3` and four tables at the head of the module (tried on
0.10.2 to 0.12.0.1). An unknown line is an empty text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchax.model import Memory
from benchax.program import hlo, hlo_module
from benchax.program.arguments import ArgumentLeaf
from benchax.program.buffer_assignment import Assignment
from benchax.program.hlo import Instruction
from benchax.program.hlo_module import Module
from benchax.program.source_tables import SourceTables
from benchax.results.memory import Buffer, BufferKind, Buffers, HeldValue

MOST_VALUES = 20
"""Values that are kept of each buffer."""


class Namer:
    """Knows what instructions of a module are called, and how the user calls its inputs and outputs."""

    def __init__(self, hlo_text: str, module: Module, paths: Sequence[str], outputs: Sequence[ArgumentLeaf]) -> None:
        self.sources = SourceTables(hlo_text)
        self.paths = paths
        self.by_name = {each.name: each for c in module.computations.values() for each in c.instructions}
        self.results = _results(module, outputs)

    def held_value(self, size_bytes: int, name: str) -> HeldValue:
        instruction = self.by_name.get(name)
        if instruction is None:
            return HeldValue(size_bytes, name, "")
        spec = "" if instruction.shape.startswith("(") else instruction.shape.partition("{")[0]
        return HeldValue(size_bytes, name, spec, hlo_module.op_name(instruction), self.sources.user_line(instruction))

    def buffer(self, size_bytes: int, kind: BufferKind, values: list[HeldValue], parameter: int | None) -> Buffer:
        largest = sorted(values, key=lambda value: -value.size_bytes)[:MOST_VALUES]
        first = largest[0] if largest else HeldValue(0, "", "")
        path = next((self.results[v.name] for v in values if v.name in self.results), "") if kind == "output" else ""
        if kind == "argument" and parameter is not None:
            path = self.paths[parameter] if parameter < len(self.paths) else f"parameter {parameter}"
        return Buffer(size_bytes, kind, path or _label(first), first.op_name, first.source, tuple(largest))


def buffers(
    plan: Assignment | None,
    hlo_text: str,
    module: Module,
    memory: Memory,
    *,
    paths: Sequence[str],
    outputs: Sequence[ArgumentLeaf],
) -> Buffers:
    """The plan, largest buffer first.

    Args:
        plan: None where it could not be read.
        hlo_text, module: the optimised program.
        memory: its plan in sums.
        paths: of the parameters of the program, as the user calls them.
        outputs: of the call, in order.
    """
    namer = Namer(hlo_text, module, paths, outputs)
    if plan is None:
        found = _from_text(module, namer)
        return Buffers(_sort(found), "program text", _find_unattributed(found, memory, 0))
    found = [
        namer.buffer(a.size_bytes, a.kind, [namer.held_value(v.size_bytes, v.name) for v in a.values], a.parameter)
        for a in plan
    ]
    reused = sum(a.size_bytes for a in plan if a.kind == "argument" and a.is_also_output)
    return Buffers(_sort(found), "buffer assignment", _find_unattributed(found, memory, reused))


def _label(value: HeldValue) -> str:
    # What has no shape of its own is a tuple: a table of addresses.
    return f"{value.name} {value.spec}".strip() if value.spec or not value.name else f"table of {value.name}"


def _sort(found: list[Buffer]) -> tuple[Buffer, ...]:
    return tuple(sorted(found, key=lambda buffer: -buffer.size_bytes))


def _find_unattributed(found: list[Buffer], memory: Memory, reused_bytes: int) -> tuple[tuple[BufferKind, int], ...]:
    """Returns the parts of the plan that no buffer accounts for, by kind. An output in a donated argument's memory is
    in both sums."""
    planned: dict[BufferKind, int | None] = {
        "argument": memory.argument_bytes,
        "output": None if memory.output_bytes is None else memory.output_bytes - reused_bytes,
        "temporary": memory.temp_bytes,
    }
    missing: dict[BufferKind, int] = {
        kind: total - sum(b.size_bytes for b in found if b.kind == kind)
        for kind, total in planned.items()
        if total is not None
    }
    return tuple((kind, size) for kind, size in missing.items() if size)


def _results(module: Module, outputs: Sequence[ArgumentLeaf]) -> dict[str, str]:
    """Path of each output by the name of the instruction that makes it."""
    made = module.entry.results if module.entry else []
    if len(made) != len(outputs):
        return {}
    paths: dict[str, str] = {}
    for instruction, leaf in zip(made, outputs, strict=True):
        for name in _same_bytes(module, instruction):
            paths.setdefault(name, leaf.path)
    return paths


def _same_bytes(module: Module, instruction: Instruction) -> Iterator[str]:
    """The instruction, and what it only gives another shape."""
    yield instruction.name
    while instruction.opcode == "bitcast" and module.entry and (read := module.entry.operands(instruction)):
        instruction = read[0]
        yield instruction.name


def _from_text(module: Module, namer: Namer) -> list[Buffer]:
    """Arguments, outputs and constants by their shapes."""
    found: list[Buffer] = []
    for each in module.entry.instructions if module.entry else ():
        held = [namer.held_value(hlo.shape_bytes(each.shape), each.name)]
        if each.opcode == "parameter":
            number = int(each.operands.strip("() ") or 0)
            found.append(namer.buffer(held[0].size_bytes, "argument", held, number))
        elif each.opcode == "constant":
            found.append(namer.buffer(held[0].size_bytes, "constant", held, None))
        elif each.name in namer.results and each.opcode != "bitcast":
            found.append(namer.buffer(held[0].size_bytes, "output", held, None))
    return found
