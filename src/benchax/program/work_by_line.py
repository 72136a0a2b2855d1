"""The work of one call by the user's lines and named scopes: operations and bytes, loop bodies times their trip counts.

The sum over lines equals the sum of `counts.py`, by the same rules. Operations inside a fusion belong to the line that
each came from. The bytes that a fusion reads and writes belong to the fusion's own line. Operations in libraries belong
to the user's line that called the library. Operations that the compiler added belong to no line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from benchax.program import hlo_module, instruction_work
from benchax.program.counts import CALLS, Adder, is_opaque
from benchax.program.hlo import Instruction
from benchax.program.hlo_module import Computation, Module
from benchax.program.instruction_work import Work
from benchax.program.source_tables import SourceTables
from benchax.program.trip_counts import find_loops
from benchax.results.inspection import LineWork

Counted = tuple[Instruction, Work, float | None]
_OF_JAX = re.compile(
    r"p?jit\(.*\)|while|body|cond|closed_call|core_call|eval_jaxpr|branch_\d+_fun|checkpoint|vmap\(\)|custom_[jv][vj]p_call"
)
"""Parts of a scope that JAX adds by itself."""


def work_by_line(hlo_text: str, module: Module) -> tuple[LineWork, ...] | None:
    """Returns the work by line, most operations first, or None if the text has no entry computation.

    An operation that benchax cannot inspect, such as a custom call, has a row without its own kind of operations or
    bytes: see `Counts.restrictions`.
    """
    if module.entry is None:
        return None
    walk = _Walk(module, SourceTables(hlo_text))
    rows: dict[tuple[str, str], Work] = {}
    kernels: dict[tuple[str, str], float | None] = {}
    for instruction, work, kernel_flops in walk.computation(module.entry, 1.0, is_fused=False):
        key = walk.tables.user_line(instruction), scope_of(hlo_module.op_name(instruction))
        rows[key] = rows.get(key, Work()).plus(work)
        before = kernels.setdefault(key, 0.0)
        kernels[key] = None if before is None or kernel_flops is None else before + kernel_flops
    found = [LineWork(*key, *work, kernels[key]) for key, work in rows.items() if any(work)]
    return tuple(sorted(found, key=lambda one: (-one.flops, -one.bytes_accessed, one.source, one.scope)))


def scope_of(op_name: str) -> str:
    """layer0/attention, of jit(step)/layer0/while/body/attention/dot_general: what the program named itself."""
    parts = op_name.split("/")[:-1]
    return "/".join(part for part in parts if part and not _OF_JAX.fullmatch(part))


class _Walk:
    """Walks a program, and yields for each instruction its work in one call, and the FLOPs of the kernel whose bytes
    those are. The FLOPs are 0 for an instruction fused into a kernel, and None for a kernel that benchax cannot
    inspect."""

    def __init__(self, module: Module, tables: SourceTables) -> None:
        self.module, self.tables = module, tables
        self.adder = Adder(module, find_loops(module))

    def computation(self, where: Computation, times: float, *, is_fused: bool) -> Iterator[Counted]:
        for each in where.instructions:
            yield from self.instruction(where, each, times, is_fused)

    def instruction(self, where: Computation, one: Instruction, times: float, is_fused: bool) -> Iterator[Counted]:
        called = self.module.called_computations(one)
        if one.opcode == "fusion":
            for _, inside in called:
                moved = Work(bytes=0 if is_fused else instruction_work.fusion_bytes(inside)).times(times)
                fused = 0.0 if is_fused else self.adder.computation(inside, is_fused=True).times(times).flops
                yield one, moved, fused
                yield from self.computation(inside, times, is_fused=True)
        elif one.opcode == "while":
            trips = self.adder.loops[one.name].trips
            often = {"body": 1 if trips is None else trips, "condition": 1 if trips is None else trips + 1}
            for part, inside in called:
                yield from self.computation(inside, times * often.get(part, 0), is_fused=False)
        elif one.opcode == "conditional":
            # The branch with most operations, as far as one is the most of all; `counts.py` takes each maximum.
            branches = [inside for _, inside in called]
            if branches:
                yield from self.computation(max(branches, key=self.adder.computation), times, is_fused=False)
        elif one.opcode in CALLS:
            for _, inside in called:
                yield from self.computation(inside, times, is_fused=False)
        else:
            work = self.adder.instruction(where, one, is_fused).times(times)
            kernel_flops = 0.0 if is_fused else work.flops
            yield one, work, None if is_opaque(one) else kernel_flops
