"""A census of a program's work: its operations and how many of each it executes. From its text, without JAX.

A timer that builds a program around a function must show that the function's work is inside the interval. XLA moves
loop-invariant operations out of a loop, deletes unused ones, and can fuse the rest differently. So this module counts
the operations inside the timed region of the optimised program, and those of the function's own executable.

    counted    arithmetic by opcode, as `work` counts it; elements that are gathered, sorted, transposed or
               copied; custom calls by target; fusions count their inner operations, again if XLA:CPU shares them
               among threads
    loops      bodies and conditions times their trip counts; those with a trip count from run time count once, and the
               loop too
    branches   the most that any branch of a conditional does of each operation

Fusing can compute a cheap producer twice, so the two need not agree to the last operation. `compare` weighs missing and
added operations by a rough price of each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from benchax.program import work
from benchax.program.hlo import Computation, Instruction, Module, custom_call_target, shape_bytes, trip_count
from benchax.program.work import CUSTOM_CALL, UNKNOWN_LOOP, Adder
from benchax.units import count

OperationTally = Counter[str]
"""How many of each operation; elements for what moves data, calls for custom calls."""
COPIES = frozenset({"copy", "transpose"})
PASSED_ON = "copy of an input to an output"

# Approximate costs in additions: enough to distinguish a missing sine from a missing index.
_PRICES = {"iota": 0.0, "convert": 0.0, "dot": 0.25, "convolution": 0.25, "sort": 3.0, UNKNOWN_LOOP: 1e4}
_PRICES |= dict.fromkeys(work.TRANSCENDENTAL, 10.0)

# The limit for added work is larger than for missing work: fusing repeats cheap producers in a complete region, but XLA
# only leaves out work if it moved it out of the timed loop.
MOST_MISSING = 0.02
MOST_ADDED = 0.05
ADDED_ANYWAY = 64.0
"""Additions' worth: the counter and the condition of the loop around, a predicate."""
COPIED_ANYWAY = 64.0
"""Elements that change their owner by themselves and need not do so around: counters, single numbers."""


class ProgramDifference(NamedTuple):
    """How a timed region differs from the function's own executable."""

    missing: float
    """Share of the function's work, by price, that the region does not do."""
    added: float
    """The additional work, as a share of the function's work."""
    operations: tuple[tuple[str, float, float], ...]
    """(operation, in the region, by itself) for each difference, the most expensive difference first."""

    @property
    def is_same(self) -> bool:
        return self.missing <= MOST_MISSING and self.added <= MOST_ADDED

    @property
    def absent(self) -> tuple[str, ...]:
        """The operations of the function that the region lacks completely, however cheap."""
        return tuple(name for name, timed, alone in self.operations if not timed and alone and name not in COPIES)


def take_census(module: Module, computation: Computation | None = None) -> OperationTally:
    """Returns the operations of one run of `computation`, including the computations that it calls.

    Default: the entry. Unchanged copies from inputs to outputs have a separate name: inside a larger program nothing
    needs these copies, and XLA can omit them.
    """
    where = computation or module.entry
    if where is None:
        return OperationTally()
    tally = work.operations_of(Adder(module).computation(where, is_fused=True))
    if computation is None and (passed_on := _passed_on(where)):
        tally.update({"copy": -passed_on, PASSED_ON: passed_on})
    return tally


def _passed_on(entry: Computation) -> int:
    """Elements of inputs that are copied to be outputs."""
    copies = [
        o for o in entry.results if o.opcode == "copy" and all(i.opcode == "parameter" for i in entry.operands(o))
    ]
    return sum(work.elements(each.shape) for each in copies if shape_bytes(each.shape))


def compare(timed: OperationTally, alone: OperationTally) -> ProgramDifference:
    """Returns the work that the timed region lacks and the work that it adds, weighed by price."""
    # The region may do without copies from inputs to outputs: only as many count as it has made.
    passed_on = min(alone[PASSED_ON], max(0, timed["copy"] - alone["copy"]))
    alone = OperationTally({name: amount for name, amount in alone.items() if name != PASSED_ON})
    alone += OperationTally({"copy": passed_on})
    total = sum(price(name) * amount for name, amount in alone.items())
    names = [name for name in {**alone, **timed} if timed[name] != alone[name]]
    gaps = {name: price(name) * (alone[name] - timed[name]) for name in names}
    uncopied = sum(gap for name, gap in gaps.items() if gap > 0 and name in COPIES)
    missing = sum(gap for gap in gaps.values() if gap > 0) - min(uncopied, COPIED_ANYWAY)
    added = max(0.0, sum(-gap for gap in gaps.values() if gap < 0) - ADDED_ANYWAY)
    ordered = sorted(names, key=lambda name: -abs(gaps[name]))
    return ProgramDifference(
        missing / total if total else 0.0,
        added / total if total else float(added > 0),
        tuple((name, timed[name], alone[name]) for name in ordered),
    )


def price(name: str) -> float:
    """Returns what one operation of that name costs, in additions."""
    return 1e4 if name.startswith(CUSTOM_CALL) else _PRICES.get(name, 1.0)


def timed_body(module: Module, stamp_target: str, scope: str = "") -> Computation | None:
    """The body of the innermost loop that reads the clock: what one run of the function costs is inside of it.

    Args:
        stamp_target: of the custom call that reads the clock, or the name of its kernel.
        scope: the name of the `jax.named_scope` around it, where several loops read the clock.
    """
    bodies = [body for body in _bodies(module, module.instructions) if _reads_clock(body, stamp_target, scope)]
    inner = [body for body in bodies if not any(other in bodies for other in module.inside(*body.instructions))]
    # If there are two such loops, the timed one is unknown, and the wrong one would prove the wrong region.
    return inner[0] if len(inner) == 1 else None


def counted_body(module: Module) -> Computation | None:
    """Returns the body of the outermost loop of the entry whose trip count is an operand. If there are several, it
    returns the most expensive."""
    # XLA:CPU wraps a small loop in a call.
    outermost = module.walk(lambda holder, _: holder.opcode == "call")
    loops = [each.one for each in outermost if each.one.opcode == "while" and trip_count(each.one) is None]

    def worth(body: Computation) -> float:
        return sum(price(name) * amount for name, amount in take_census(module, body).items())

    return max(_bodies(module, loops), key=worth, default=None)


def describe_missing(difference: ProgramDifference) -> str:
    """Describes the missing operations, such as "0 of its 32.8 k sine, 2 of its 3 dot", most expensive first."""
    lacking = [each for each in difference.operations if each[1] < each[2]]
    return ", ".join(f"{count(timed)} of its {count(alone)} {name}" for name, timed, alone in _dearest(lacking))


def describe_added(difference: ProgramDifference) -> str:
    """Describes the additional operations, such as "205 k instead of 4.10 k sine", most expensive first."""
    beyond = [each for each in difference.operations if each[1] > each[2]]
    return ", ".join(f"{count(timed)} instead of {count(alone)} {name}" for name, timed, alone in _dearest(beyond))


def _dearest(differences: Sequence[tuple[str, float, float]]) -> list[tuple[str, float, float]]:
    """Returns at most three, and only those that matter compared with the first."""
    dearness = [price(name) * abs(timed - alone) for name, timed, alone in differences]
    return [each for each, dear in zip(differences[:3], dearness, strict=False) if dear > 0.01 * dearness[0]]


def _bodies(module: Module, instructions: Iterable[Instruction]) -> list[Computation]:
    loops = (each for each in instructions if each.opcode == "while")
    return [body for each in loops for key, body in module.called_computations(each) if key == "body"]


def _reads_clock(body: Computation, target: str, scope: str) -> bool:
    return any(
        each.opcode == "custom-call"
        and custom_call_target(each) == target
        and (not scope or f"/{scope}/" in each.attributes)
        for each in body.instructions
    )
