"""The operations of an optimised program, one by one: the place of each, its inputs, and its part of the work.

The rules of `counts.py` count the work, for one call of the program. Bodies of loops count times their trip counts, and
a conditional counts the most that any branch does. From the text, without JAX.

Instructions that name or group values, or wait for something, do no work and are omitted. Their readers read the
original values directly. The insides of reductions and sorts belong to these. The insides of fusions, loops, branches
and calls are listed inside them.
"""

from __future__ import annotations

from collections.abc import Iterator

from benchax.program import hlo, hlo_module
from benchax.program.counts import CALLS, Adder, is_opaque
from benchax.program.hlo import Instruction
from benchax.program.hlo_module import Computation, Module
from benchax.program.instruction_work import FREE
from benchax.program.source_tables import SourceTables
from benchax.program.trip_counts import find_loops
from benchax.program.work_by_line import scope_of
from benchax.results.operations import HloOperation, HloOperations
from benchax.units import plural

MOST_OPERATIONS = 20_000
HOLDERS = ("fusion", "while", "conditional", *CALLS)
BRANCHES = ("branch_computations", "true_computation", "false_computation")
OPAQUE = "nobody can look into it"


def operations(hlo_text: str, module: Module, most: int = MOST_OPERATIONS) -> HloOperations | None:
    """Lists operations in the order of the text, outermost first. Returns None if the text has no entry computation.

    Args:
        hlo_text: `compiled.as_text()`.
        module: the same text as `hlo_module.parse` reads it.
        most: maximum number to list; further operations are only counted.
    """
    if module.entry is None:
        return None
    lister = _OperationLister(module, SourceTables(hlo_text), most)
    lister.run(module.entry)
    return HloOperations(tuple(lister.found), lister.left_out)


class _OperationLister:
    """Lists level by level, so that a limit omits the deepest operations."""

    def __init__(self, module: Module, tables: SourceTables, most: int) -> None:
        self.module, self.tables, self.most = module, tables, most
        self.adder = Adder(module, find_loops(module))
        self.holes: dict[str, bool] = {}
        self.found: list[HloOperation] = []
        self.left_out = 0

    def run(self, entry: Computation) -> None:
        level = [(entry, None, "", 1.0, False)]
        while level:
            level = [inner for outer in level for inner in self.list_computation(*outer)]

    def list_computation(
        self, where: Computation, inside: int | None, part: str, times: float, is_fused: bool
    ) -> list[tuple[Computation, int, str, float, bool]]:
        """Lists its operations. Returns the computations inside them."""
        working = [each for each in where.instructions if each.opcode not in FREE]
        taken = working[: max(self.most - len(self.found), 0)]
        self.left_out += len(working) - len(taken)
        numbers = {each.name: number for number, each in enumerate(taken, len(self.found))}
        makers = _Makers(where)
        inner: list[tuple[Computation, int, str, float, bool]] = []
        for each in taken:
            called = self.module.called_computations(each) if each.opcode in HOLDERS else []
            reads = tuple(numbers[name] for name in makers.read_by(each) if name in numbers)
            inner += [
                (held, numbers[each.name], title, times * often, is_fused or each.opcode == "fusion")
                for title, held, often in self.parts(each, called)
            ]
            self.found.append(self.operation(where, each, inside, part, times, is_fused, reads))
        return inner

    def operation(
        self,
        where: Computation,
        one: Instruction,
        inside: int | None,
        part: str,
        times: float,
        is_fused: bool,
        reads: tuple[int, ...],
    ) -> HloOperation:
        done = None if self.is_hole(one) else self.adder.instruction(where, one, is_fused).times(times)
        flops, transcendentals, size = done or (None, None, None)
        return HloOperation(
            one.name,
            hlo.custom_call_target(one) or one.opcode,
            one.shape,
            self.tables.user_line(one),
            scope_of(hlo_module.op_name(one)),
            inside,
            part,
            flops,
            transcendentals,
            size,
            self.describe(one),
            reads,
        )

    def describe(self, one: Instruction) -> str:
        """Returns the restriction of its numbers."""
        if is_opaque(one):
            return OPAQUE
        if one.opcode == "while":
            loop = self.adder.loops[one.name]
            return f"counted once: {loop.trips_from}" if loop.trips is None else plural(loop.trips, "iteration")
        if one.opcode == "conditional":
            branches = [self.adder.computation(held) for _, held in self.module.called_computations(one)]
            return "the most that any branch does" if len(set(branches)) > 1 else ""
        return ""

    def parts(
        self, one: Instruction, called: list[tuple[str, Computation]]
    ) -> Iterator[tuple[str, Computation, float]]:
        """(title, computation, how often it runs each time that the operation does)"""
        trips = self.adder.loops[one.name].trips if one.opcode == "while" else None
        branches = [held for key, held in called if key in BRANCHES]
        for key, held in called:
            if one.opcode == "while":
                yield key, held, 1 if trips is None else trips + (key == "condition")
            else:
                yield f"branch {branches.index(held)}" if held in branches else "", held, 1

    def is_hole(self, one: Instruction) -> bool:
        """Returns whether benchax cannot inspect it, or something inside it."""
        if is_opaque(one):
            return True
        return any(self.has_hole(held) for _, held in self.module.called_computations(one))

    def has_hole(self, computation: Computation) -> bool:
        if computation.name not in self.holes:
            self.holes[computation.name] = any(map(self.is_hole, computation.instructions))
        return self.holes[computation.name]


class _Makers:
    """The instructions that made the values of a computation, without those that only name and group values."""

    def __init__(self, where: Computation) -> None:
        self.where = where
        self.known: dict[str, tuple[str, ...]] = {}

    def read_by(self, one: Instruction) -> tuple[str, ...]:
        """Each once."""
        made = (name for each in self.where.operands(one) for name in self.makers(each))
        return tuple(dict.fromkeys(made))

    def makers(self, value: Instruction) -> tuple[str, ...]:
        if value.opcode not in FREE:
            return (value.name,)
        if value.name not in self.known:
            self.known[value.name] = self.read_by(value)
        return self.known[value.name]
