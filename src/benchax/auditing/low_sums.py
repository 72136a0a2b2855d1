"""Running sums and moving averages of bf16 and f16 in a traced program: loops and scatters that add to one value.

A carry of a `scan` is a running sum if the body returns the carry with something added. It can be added by `+`, by
`x.at[i].add`, in some rows (`jnp.where`), in another `scan` inside, or in float32 and rounded again. The lengths of the
loops and the shapes give the number of terms per element. With n terms for k elements, this is n / k on average, and
some element has that many. `experiments/running_sums.py` finds the plain ones, which it can also carry wider.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from benchax.auditing.recorder.views import Carried
from benchax.experiments.running_sums import ADDITIONS, LOW
from benchax.program.index import CONVERTS, KEEPS, TracedOp, TracedProgram, Value

PASSES = KEEPS | CONVERTS
SCATTERS = ("scatter-add", "scatter_add")
BITS = {"bfloat16": 8, "float16": 11}
"""Digits of the mantissa, with the one that is not stored."""
LOST = 0.1
"""An average that does not move before a new value differs by this share has no use."""


@dataclass(frozen=True)
class LowSum:
    """A value to which terms are added one after the other."""

    op: TracedOp
    """The loop, or the scatter."""
    start: Value
    added: TracedOp
    terms: float
    """Terms of one element, on average."""
    position: int = 0
    """The place of the value among the carries of the loop."""
    calls: int = 0
    """Calls of the function with its own result, in a Python loop."""

    @property
    def dtype(self) -> str:
        return str(self.start.dtype)


class StuckAverage(NamedTuple):
    """A moving average that loses its updates in its dtype."""

    start: Value
    """The average so far: an input of the body."""
    multiplied: TracedOp
    factor: float
    """Factor of the old value, as the program has it; that of the new one is `weight`."""
    weight: float
    lost: float
    """New values are lost that differ by a smaller part of the average than this."""


@dataclass(frozen=True)
class _Chain:
    """How a value is made of a carry by additions alone."""

    terms: float = 0.0
    added: TracedOp | None = None
    inside: frozenset[TracedOp] = frozenset()
    """Loops and scatters that are part of it."""

    def extend(self, terms: float, added: TracedOp, inside: frozenset[TracedOp] = frozenset()) -> _Chain:
        return _Chain(self.terms + terms, added, self.inside | inside)


def low_sums(program: TracedProgram) -> Iterator[LowSum]:
    """Sums of loops, outermost loops first, each once, and then what single scatters add."""
    told = set[TracedOp]()
    for op in (op for op in program.ops if op.name == "scan"):
        for i, (start, taken, returned) in enumerate(op.bodies[0].carries):
            chain = _follow(returned, taken) if str(start.dtype) in LOW else None
            if chain is not None and chain.added is not None:
                if not told & chain.inside:
                    yield LowSum(op, start, chain.added, op.params["length"] * chain.terms, i)
                told |= chain.inside
    for op in program.find(*SCATTERS):
        if str(op.makes[0].dtype) in LOW and op not in told:
            yield LowSum(op, op.reads[0], op, _terms_of_scatter(op))


def sums_of_calls(program: TracedProgram, carried: Carried) -> Iterator[LowSum]:
    """Sums of a Python loop: results that are an argument with something added, and come back as that argument. A step
    of an optimizer does not count, since it is made of the argument."""
    inputs, outputs = program.inputs, program.outputs
    for i, j in carried.positions:
        if i < len(inputs) and j < len(outputs) and str(inputs[i].dtype) in LOW:
            chain = _follow(outputs[j], inputs[i], is_strict=True)
            if chain is not None and chain.added is not None:
                yield LowSum(chain.added, inputs[i], chain.added, carried.calls * chain.terms, i, carried.calls)


def _follow(returned: Value, carry: Value, *, is_strict: bool = False) -> _Chain | None:
    """How a value is made of a carry; None if anything else than additions is done to it.

    Args:
        is_strict: what is added must not be made of the carry.
    """
    depending = carry.ahead()
    known: dict[Value, _Chain | None] = {carry: _Chain()}

    def behind(value: Value) -> _Chain | None:
        if value not in known:
            known[value] = step(value, value.maker) if value.maker is not None and value in depending else None
        return known[value]

    def step(value: Value, op: TracedOp) -> _Chain | None:
        if op.name in PASSES:
            return behind(op.reads[0])
        if op.name in ADDITIONS:
            parts = [one for one in op.reads if one in depending]
            # `carry + f(carry)` adds up too, if it is plain to see.
            parts = [one for one in parts if one is carry] if len(parts) > 1 and not is_strict else parts
            before = behind(parts[0]) if len(parts) == 1 else None
            return before and before.extend(1.0, op)
        if op.name in SCATTERS and not depending.intersection(op.reads[1:]):
            before = behind(op.reads[0])
            return before and before.extend(_terms_of_scatter(op), op, frozenset({op}))
        if op.name == "select_n":
            sides = [behind(one) for one in op.reads[1:]]
            chains = [side for side in sides if side is not None]
            return max(chains, key=lambda side: side.terms) if len(chains) == len(sides) else None
        return of_loop(op, op.makes.index(value)) if op.name == "scan" else None

    def of_loop(op: TracedOp, at: int) -> _Chain | None:
        carries = op.bodies[0].carries
        if at >= len(carries):
            return None
        start, taken, given = carries[at]
        before, inner = behind(start), _follow(given, taken)
        if before is None or inner is None or inner.added is None:
            return None
        return before.extend(op.params["length"] * inner.terms, inner.added, inner.inside | {op})

    return behind(returned)


def _terms_of_scatter(op: TracedOp) -> float:
    return op.reads[2].size / max(op.reads[0].size, 1)


def stuck_averages(program: TracedProgram) -> Iterator[StuckAverage]:
    """Averages `decay * old + (1 - decay) * new` whose updates are lost in the dtype that they are kept in."""
    for body in (body for body in program.bodies if body.is_loop or body.op is None):
        for old in (value for value in body.inputs if str(value.dtype) in LOW):
            depending = old.ahead()
            for output in body.outputs:
                op = output.back(PASSES).maker
                if op is None or op.name not in ADDITIONS or output.shape != old.shape or output.dtype != old.dtype:
                    continue
                kept = next((_scaled(one) for one in op.reads if one in depending), None)
                new = next((_scaled(one) for one in op.reads if one not in depending), None)
                if kept and new and any(one.back(PASSES) is old for one in kept[0].reads):
                    lost = lost_difference(kept[1], new[1], str(old.dtype))
                    if lost >= LOST:
                        yield StuckAverage(old, *kept, new[1], lost)


def _scaled(value: Value) -> tuple[TracedOp, float] | None:
    """(the product with a number that a value is, the number)"""
    op = value.made_by("mul", through=PASSES)
    numbers = [one.literal for one in op.reads if one.literal is not None and not one.shape] if op is not None else []
    return (op, float(numbers[0])) if op is not None and len(numbers) == 1 else None


def lost_difference(factor: float, weight: float, dtype: str) -> float:
    """Returns how far a new value must be from the average for the average to move at all, as a part of the average.

    The average moves by `weight` of the difference, and rounding removes a move below half a unit in the last place.
    That is at least 2^-(bits + 1) of a number, and at most twice as much. The result is 0 if the two factors do not
    belong to an average. A factor in the dtype itself is rounded to half a unit, too.
    """
    half = 2.0 ** -(BITS[dtype] + 1)
    return half / weight if weight > 0 and abs(factor + weight - 1) <= half and factor <= 1 else 0.0
