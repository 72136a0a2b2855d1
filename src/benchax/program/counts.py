"""Operations and bytes of one call of an optimised program, loop bodies times their trip counts.

From the text, without JAX.

XLA's own cost analysis counts a loop body once, however often it runs: it makes no difference between a scan of 1, 10
and 100 matmuls. This module counts every instruction by the rules of `instruction_work`, and

    loops         body times trip count, condition one more time than that; nested ones multiply. Where the trip count
                  is decided while the program runs, the body is counted once, and said to be.
    conditionals  the most that any branch does, and said where the branches differ.
    custom calls  are work that benchax can't inspect (LAPACK, Python callbacks), but for products by cuBLAS and
                  convolutions by cuDNN, which say what they do. An incomplete sum is not a count: it becomes None, and
                  the restriction has the part that was counted.

It is still a static count for one device, taken from the program and never from a run.
"""

from __future__ import annotations

from collections import Counter

from benchax.program import hlo, hlo_module, instruction_work
from benchax.program.hlo import Instruction
from benchax.program.hlo_module import Computation, Module
from benchax.program.instruction_work import Work
from benchax.program.trip_counts import find_loops
from benchax.results.inspection import Counts, Loop
from benchax.units import count as counted_text
from benchax.units import size as size_text

CALLS = ("call", "async-start")
"""Opcodes whose work is done by the computation that they call."""
# XLA's own instructions for what it usually turns into a custom call: no rule of ours counts them.
_UNCOUNTED = ("cholesky", "triangular-solve", "select-and-scatter", "infeed", "outfeed", "send", "recv")


def counts(hlo_text: str, module: Module | None = None) -> Counts | None:
    """The work of one call; None where the text has no entry computation.

    Args:
        hlo_text: `compiled.as_text()`.
        module: the same text as `hlo_module.parse` reads it, if at hand.
    """
    module = module or hlo_module.parse(hlo_text)
    if module.entry is None:
        return None
    found_loops = find_loops(module)
    adder = Adder(module, found_loops)
    work = adder.computation(module.entry)
    opaque = _opaque(module)
    opcodes = Counter(each.opcode for each in _instructions(module))
    hole = [_hole(opaque, work)] if opaque else []
    return Counts(
        flops=None if opaque else work.flops,
        transcendentals=None if opaque else work.transcendentals,
        bytes_accessed=None if opaque else work.bytes,
        is_exact=not opaque and not adder.restrictions,
        restrictions=(*hole, *adder.restrictions),
        loops=found_loops,
        fusions=opcodes["fusion"],
        instructions=_sort(opcodes),
        opaque_calls=_sort(opaque),
    )


def least_operations(hlo_text: str) -> float | None:
    """Counts the operations that a program needs, however it computes its windows; each transcendental counts as one.

    A cumulative sum is written as a reduce-window of n windows with n elements. Computed from left to right, it is n
    operations. So each element of a reduce-window's result counts as one here. Custom calls count as nothing. Returns
    None if the text has no entry computation.
    """
    module = hlo_module.parse(hlo_text)
    if module.entry is None:
        return None
    work = Adder(module, find_loops(module), is_least=True).computation(module.entry)
    return work.flops + work.transcendentals


class Adder:
    """Adds up computations, each once, and notes what restricts the sum."""

    def __init__(self, module: Module, found: tuple[Loop, ...], *, is_least: bool = False) -> None:
        self.module = module
        self.is_least = is_least
        self.loops = {loop.name: loop for loop in found}
        self.restrictions: dict[str, None] = {}  # ordered, each once
        self.known: dict[tuple[str, bool], Work] = {}

    def computation(self, computation: Computation, *, is_fused: bool = False) -> Work:
        """`is_fused`: operations only; what moves inside of a fusion moves in registers."""
        key = computation.name, is_fused
        if key not in self.known:
            total = Work()
            for each in computation.instructions:
                total = total.plus(self.instruction(computation, each, is_fused))
            self.known[key] = total
        return self.known[key]

    def instruction(self, computation: Computation, instruction: Instruction, is_fused: bool) -> Work:
        opcode = instruction.opcode
        if opcode == "fusion":
            return self.fusion(instruction, is_fused)
        if opcode == "while":
            return self.loop(instruction)
        if opcode == "conditional":
            return self.conditional(instruction)
        if opcode in CALLS:
            return self.count_called(instruction)
        if opcode == "reduce-window" and self.is_least:
            return self.count_applied(instruction).times(instruction_work.elements(instruction.shape))
        done = instruction_work.arithmetic(computation, instruction, self.count_applied)
        return done if is_fused else done._replace(bytes=instruction_work.moved_bytes(computation, instruction))

    def fusion(self, instruction: Instruction, is_fused: bool) -> Work:
        total = Work()
        for _, inside in self.module.called_computations(instruction):
            moved = 0 if is_fused else instruction_work.fusion_bytes(inside)
            total = total.plus(self.computation(inside, is_fused=True)._replace(bytes=moved))
        return total

    def loop(self, instruction: Instruction) -> Work:
        called = dict(self.module.called_computations(instruction))
        body, condition = (
            self.computation(called[part]) if part in called else Work() for part in ("body", "condition")
        )
        loop = self.loops[instruction.name]
        if loop.trips is None:
            where = f" ({loop.op_name})" if loop.op_name else ""
            self.restrict(f"the body of the loop {loop.name}{where} is counted once: {loop.trips_from}")
            return body.plus(condition)
        return body.times(loop.trips).plus(condition.times(loop.trips + 1))

    def conditional(self, instruction: Instruction) -> Work:
        branches = [self.computation(each) for _, each in self.module.called_computations(instruction)]
        if not branches:
            return Work()
        if len(set(branches)) > 1:
            self.restrict(
                f"the branches of the conditional {instruction.name} differ: the most that any of them does is counted"
            )
        return Work(*(max(each) for each in zip(*branches, strict=True)))

    def count_called(self, instruction: Instruction) -> Work:
        total = Work()
        for _, inside in self.module.called_computations(instruction):
            total = total.plus(self.computation(inside))
        return total

    def count_applied(self, instruction: Instruction) -> Work:
        """Returns an instruction's work per element, from the computation that it names."""
        total = Work()
        for _, inside in self.module.called_computations(instruction):
            total = total.plus(self.computation(inside, is_fused=True))
        return total

    def restrict(self, sentence: str) -> None:
        self.restrictions[sentence] = None


def is_opaque(instruction: Instruction) -> bool:
    """No rule of ours counts its work: a custom call, or what XLA usually turns into one."""
    target = hlo.custom_call_target(instruction)
    return instruction.opcode in _UNCOUNTED or bool(target and _hides_its_work(target))


def _hides_its_work(target: str) -> bool:
    return not hlo.is_annotation(target) and not hlo.is_library_product(target)


def _opaque(module: Module) -> Counter[str]:
    """Counts the instructions that none of our rules can count, by target of the custom call or by opcode."""
    return Counter(hlo.custom_call_target(each) or each.opcode for each in _instructions(module) if is_opaque(each))


def _hole(opaque: Counter[str], work: Work) -> str:
    names = ", ".join(repr(name) for name, _ in _sort(opaque))
    counted = f"{counted_text(work.flops, 'FLOP')} and {size_text(work.bytes)}"
    return f"{counted} were counted, but nobody can look into {names}: a sum with a hole in it is no count"


def _instructions(module: Module) -> list[Instruction]:
    return [each for computation in module.computations.values() for each in computation.instructions]


def _sort(counted: Counter[str]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(counted.items(), key=lambda pair: (-pair[1], pair[0])))
