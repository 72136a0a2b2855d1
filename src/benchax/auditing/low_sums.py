"""Running sums and moving averages of bf16 and f16 in a traced program: what loops and scatters add to one value.

A carry of a `scan` is a running sum where what the body returns for it is the carry with something added: by `+`, by
`x.at[i].add`, in some rows (`jnp.where`), in another `scan` inside, or in float32 and rounded again. How many terms
one element gets is known from the lengths of the loops and from shapes: n terms for k elements are n / k on average,
and some element has as many. `experiments/running_sums.py` finds the plain ones, which it can also carry wider.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from benchax.auditing.dataflow import GRADIENT, Body, bodies
from benchax.auditing.recorder.views import Carried
from benchax.auditing.traced import TracedEquation, TracedValue, flow
from benchax.experiments.running_sums import ADDITIONS, LOW

PASSES = ("convert_element_type", "copy", "reshape", "squeeze", "expand_dims")
SCATTERS = ("scatter-add", "scatter_add")
LOST = 0.1
"""An average that does not move before a new value differs by so much has no use."""
BITS = {"bfloat16": 8, "float16": 11}
"""Digits of the mantissa, with the one that is not stored."""


class LowSum(NamedTuple):
    """A value to which terms are added one after the other."""

    body: Body
    """Where what it begins with is known."""
    step: TracedEquation
    """The loop, or the scatter."""
    start: TracedValue
    dtype: str
    added: TracedEquation
    terms: float
    """Of one element, on average of them."""
    position: int
    """Among the carries of the loop."""
    calls: int = 0
    """Of a Python loop: so often was the function called with its own result."""

    @property
    def is_scattered(self) -> bool:
        return self.added.name in SCATTERS


class StuckAverage(NamedTuple):
    """A moving average that loses its updates in its dtype."""

    body: Body
    start: TracedValue
    """What is averaged so far: an input of the body."""
    multiplied: TracedEquation
    factor: float
    """Of the old value, as the program has it; that of the new one is `weight`."""
    weight: float
    lost: float
    """New values are lost that differ by a smaller part of the average than this."""


@dataclass
class _Added:
    """How a value is made of a carry by additions alone."""

    terms: float = 0.0
    added: TracedEquation | None = None
    loops: tuple[int, ...] = ()
    """Equations of the loops and scatters in it, by their ids."""


def low_sums(closed: Any) -> Iterator[LowSum]:
    """Sums of loops, outermost loops first, each once, and then what single scatters add."""
    everything, told = list(bodies(closed)), set[int]()
    for body in everything:
        for step in body.program.steps:
            for found, chain in _of_loop(body, step) if step.name == "scan" else ():
                if not told & {*chain.loops}:
                    yield found
                told |= {*chain.loops}
    for body in everything:
        for step in body.program.steps:
            is_low = step.name in SCATTERS and str(step.makes[0].dtype) in LOW
            if is_low and GRADIENT not in step.scope and id(step.equation) not in told:
                yield LowSum(body, step, step.reads[0], str(step.makes[0].dtype), step, _terms_of_scatter(step), 0)


def sums_of_calls(closed: Any, carried: Carried) -> Iterator[LowSum]:
    """Sums of a Python loop: results that are an argument with something added, and come back as that argument. What
    is added is not made of the argument, as a step of an optimiser is."""
    body = Body(flow(closed))
    inputs, outputs = body.program.inputs, body.program.outputs
    for i, j in carried.positions:
        if i >= len(inputs) or j >= len(outputs) or str(inputs[i].dtype) not in LOW:
            continue
        chain = _CarryWay(body, inputs[i], strict=True).behind(outputs[j])
        if chain is not None and chain.added is not None:
            terms = carried.calls * chain.terms
            yield LowSum(body, chain.added, inputs[i], str(inputs[i].dtype), chain.added, terms, i, carried.calls)


def _of_loop(body: Body, step: TracedEquation) -> Iterator[tuple[LowSum, _Added]]:
    for i, start in enumerate(step.split_operands(step.reads).carry):
        chain = _follow_carry(step, i) if str(start.dtype) in LOW else None
        if chain is not None and chain.added is not None:
            terms = step.equation.params["length"] * chain.terms
            yield LowSum(body, step, start, str(start.dtype), chain.added, terms, i), chain


def _follow_carry(scan: TracedEquation, position: int) -> _Added | None:
    """Finds the values that one iteration adds to a carry; None if it does anything else."""
    inside = Body(flow(scan.equation.params["jaxpr"]), len(scan.split_operands(scan.reads).consts), of=scan)
    taken, returned = inside.carries[position]
    return _CarryWay(inside, taken).behind(returned)


class _CarryWay:
    """A body, and the carry whose way through it is followed."""

    def __init__(self, body: Body, carry: TracedValue, *, strict: bool = False) -> None:
        self.body, self.carry, self.is_strict = body, carry, strict
        self.depending = depending_on(body, carry)
        self.known: dict[int, _Added | None] = {}

    def behind(self, value: TracedValue) -> _Added | None:
        if id(value) not in self.known:
            self.known[id(value)] = _Added() if value is self.carry else self._behind(value)
        return self.known[id(value)]

    def _behind(self, value: TracedValue) -> _Added | None:
        step = self.body.maker(value)
        if step is None or id(value) not in self.depending:
            return None
        if step.name in PASSES:
            return self.behind(step.reads[0])
        if step.name in ADDITIONS:
            return self._of_addition(step)
        if step.name in SCATTERS and not any(id(one) in self.depending for one in step.reads[1:]):
            terms = _terms_of_scatter(step)
            return _extend(self.behind(step.reads[0]), terms, step, id(step.equation))
        if step.name == "select_n":
            sides = [self.behind(one) for one in step.reads[1:]]
            known = [side for side in sides if side is not None]
            return max(known, key=lambda side: side.terms) if len(known) == len(sides) else None
        return self._of_loop(step, value) if step.name == "scan" else None

    def _of_addition(self, step: TracedEquation) -> _Added | None:
        parts = [one for one in step.reads if id(one) in self.depending]
        # `carry + f(carry)` adds up too, where it is plain to see.
        parts = [one for one in parts if one is self.carry] if len(parts) > 1 and not self.is_strict else parts
        return _extend(self.behind(parts[0]), 1.0, step) if len(parts) == 1 else None

    def _of_loop(self, step: TracedEquation, value: TracedValue) -> _Added | None:
        at = next(i for i, one in enumerate(step.makes) if one is value)
        starts = step.split_operands(step.reads).carry
        if at >= len(starts):
            return None
        before, inner = self.behind(starts[at]), _follow_carry(step, at)
        if before is None or inner is None or inner.added is None:
            return None
        terms = step.equation.params["length"] * inner.terms
        found = _extend(before, terms, inner.added, id(step.equation))
        return found and _Added(found.terms, found.added, (*found.loops, *inner.loops))


def _extend(chain: _Added | None, terms: float, added: TracedEquation, *loops: int) -> _Added | None:
    return None if chain is None else _Added(chain.terms + terms, added, (*chain.loops, *loops))


def depending_on(body: Body, value: TracedValue) -> set[int]:
    """Values that are made of one, by their ids, itself included."""
    found, waiting = {id(value)}, [value]
    while waiting:
        made = [one for step in body.readers(waiting.pop()) for one in step.makes if id(one) not in found]
        found |= {id(one) for one in made}
        waiting += made
    return found


def _terms_of_scatter(step: TracedEquation) -> float:
    operand, updates = step.reads[0], step.reads[2]
    return math.prod(updates.shape) / max(math.prod(operand.shape), 1)


# ---- moving averages --------------------------------------------------------------------------------------------


def stuck_averages(closed: Any) -> Iterator[StuckAverage]:
    """Averages `decay * old + (1 - decay) * new` whose updates are lost in the dtype that they are kept in."""
    for body in bodies(closed):
        for value in body.program.inputs if body.is_loop or body.of is None else ():
            if str(value.dtype) in LOW:
                yield from _averages_of(body, value)


def _averages_of(body: Body, old: TracedValue) -> Iterator[StuckAverage]:
    depending = depending_on(body, old)
    for output in body.program.outputs:
        step = body.maker(body.through(output, PASSES))
        if step is None or step.name not in ADDITIONS or output.shape != old.shape or output.dtype != old.dtype:
            continue
        olds = [one for one in step.reads if id(one) in depending]
        news = [one for one in step.reads if id(one) not in depending]
        (kept, factor), (_, weight) = (_scaled(body, side[0]) if side else (None, None) for side in (olds, news))
        if kept is None or factor is None or weight is None:
            continue
        is_of_old = any(body.through(one, PASSES) is old for one in kept.reads)
        lost = lost_difference(factor, weight, str(old.dtype)) if is_of_old else 0.0
        if lost >= LOST:
            yield StuckAverage(body, old, kept, factor, weight, lost)


def _scaled(body: Body, value: TracedValue) -> tuple[TracedEquation | None, float | None]:
    """The product with a number that a value is, and the number."""
    step = body.maker(body.through(value, PASSES))
    numbers = [one for one in step.reads if one.literal is not None and np.ndim(one.literal) == 0] if step else []
    is_product = step is not None and step.name == "mul" and len(numbers) == 1
    return (step, float(numbers[0].literal)) if is_product else (None, None)


def lost_difference(factor: float, weight: float, dtype: str) -> float:
    """How far a new value has to be from the average for the average to move at all, as a part of the average.

    It moves by `weight` of the difference, which is rounded away below half a unit in the last place: that is
    2^-(bits + 1) of a number at least, and twice as much at most. 0 where the two factors are no average's: a factor
    that is written in the dtype itself is rounded to half a unit too.
    """
    half = 2.0 ** -(BITS[dtype] + 1)
    return half / weight if weight > 0 and abs(factor + weight - 1) <= half and factor <= 1 else 0.0
