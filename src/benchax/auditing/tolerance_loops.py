"""Loops that wait for a tolerance: `while_loop` until a residual is small or a number of iterations is reached.

Found in the traced program; `tolerance_runs.py` runs them. Loops in bodies of other loops and branches are left out,
for their inputs are not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend import core

from benchax.auditing.traced import TracedEquation, TracedProgram, TracedValue, flow

PASSES = ("convert_element_type", "squeeze", "reshape", "broadcast_in_dim", "copy", "stop_gradient")
LOGIC = ("and", "or", "not", "reduce_or", "reduce_and")
COMPARISONS = ("gt", "ge", "lt", "le")
SCALES = (*PASSES, "add", "div", "integer_pow", "max", "min", "mul", "sqrt", "square", "sub")
SMALL = 1e-2
"""A factor of what the loop carries that makes a tolerance of it."""


class ToleranceLoop(NamedTuple):
    """A loop, and the comparison that ends it."""

    step: TracedEquation
    cond: TracedProgram
    body: TracedProgram
    is_in_body: bool
    """Is the comparison made in the body, and the condition reads what came of it?"""
    compared: TracedEquation
    residual: TracedValue
    tolerance: TracedValue


def tolerance_loops(closed: Any) -> tuple[TracedProgram, list[ToleranceLoop]]:
    """The program, its constants before its inputs, and its loops of this kind."""
    program = flow(constants_as_inputs(closed))
    loops = (_of_step(step) for step in program.steps if step.name == "while")
    return program, [loop for loop in loops if loop is not None]


def behind_tolerance(program: TracedProgram, loop: ToleranceLoop) -> list[TracedValue]:
    """What the tolerance is scaled and shifted by, in the loop and before it."""
    within = loop.body if loop.is_in_body else loop.cond
    makers = {id(value): step for part in (within, program) for step in part.steps for value in step.makes}
    params = loop.step.equation.params
    first = params["cond_nconsts"] if loop.is_in_body else 0
    outside = {id(value): i + first for i, value in enumerate(within.inputs)}
    found, waiting = list[TracedValue](), [loop.tolerance]
    while waiting:
        value = waiting.pop()
        value = loop.step.reads[outside[id(value)]] if id(value) in outside else value
        found.append(value)
        step = makers.get(id(value))
        waiting += step.reads if step is not None and step.name in SCALES else ()
    return found


def constants_as_inputs(closed: Any) -> Any:
    """The program with its constants before its inputs, so that their values can be given."""
    if not closed.consts:
        return closed
    jaxpr = closed.jaxpr
    changed = jaxpr.replace(constvars=[], invars=[*jaxpr.constvars, *jaxpr.invars])
    return core.ClosedJaxpr(changed, [])


def _of_step(step: TracedEquation) -> ToleranceLoop | None:
    params = step.equation.params
    if params["cond_jaxpr"].consts or params["body_jaxpr"].consts:
        return None
    cond, body = flow(params["cond_jaxpr"]), flow(params["body_jaxpr"])
    n_cond, n_body = params["cond_nconsts"], params["body_nconsts"]
    in_cond, in_body = _Parts(cond, n_cond), _Parts(body, n_body)
    parts = list(in_cond.of(cond.outputs[0], True))
    flags = [(i, sign) for value, sign in parts for i, one in enumerate(cond.inputs[n_cond:]) if one is value]
    kept = [(in_body, value, sign) for i, flag_sign in flags for value, sign in in_body.of(body.outputs[i], flag_sign)]
    compared = [*((in_cond, value, sign) for value, sign in parts), *kept]
    if not any(where.is_count(value) for where, value, _ in compared):
        return None
    for where, value, sign in compared:
        if (ends := where.residual_and_tolerance(value, sign)) is not None:
            return ToleranceLoop(step, cond, body, where is in_body, where.makers[id(value)], *ends)
    return None


class _Parts:
    """The comparisons that a condition is made of, in the condition of a loop or in its body."""

    def __init__(self, program: TracedProgram, constants: int) -> None:
        self.program = program
        self.makers = {id(value): step for step in program.steps for value in step.makes}
        self.carried = {id(value) for value in program.inputs[constants:]}

    def of(self, value: TracedValue, sign: bool) -> Iterator[tuple[TracedValue, bool]]:
        """(a part, does the loop go on while it is true?)."""
        step = self.makers.get(id(value))
        if step is None or step.name not in (*PASSES, *LOGIC):
            yield value, sign
            return
        for read in step.reads:
            yield from self.of(read, sign != (step.name == "not"))

    def is_count(self, value: TracedValue) -> bool:
        step = self.makers.get(id(value))
        return step is not None and step.name in COMPARISONS and step.reads[0].is_of(jnp.integer)

    def residual_and_tolerance(self, value: TracedValue, sign: bool) -> tuple[TracedValue, TracedValue] | None:
        """Which of the compared is to become the smaller one; None where no float that the loop carries is."""
        step = self.makers.get(id(value))
        if step is None or step.name not in COMPARISONS or not step.reads[0].is_of(jnp.floating):
            return None
        first, second = step.reads
        ends = (first, second) if (step.name in ("gt", "ge")) == sign else (second, first)
        is_tolerance = not self._is_carried(ends[1]) or self._is_small_part(ends[1])
        return ends if is_tolerance and self._is_carried(ends[0]) else None

    def _is_small_part(self, value: TracedValue) -> bool:
        """Is it a small number times something else, as the size of what is compared?"""
        while (step := self.makers.get(id(value))) is not None and step.name in PASSES:
            value = step.reads[0]
        factors = step.reads if step is not None and step.name == "mul" else ()
        return any(f.literal is not None and np.ndim(f.literal) == 0 and 0 < abs(f.literal) < SMALL for f in factors)

    def _is_carried(self, value: TracedValue) -> bool:
        """Does it differ from iteration to iteration, as far as can be told?"""
        seen, waiting = set[int](), [value]
        while waiting:
            one = waiting.pop()
            if id(one) in self.carried:
                return True
            step = self.makers.get(id(one))
            if id(one) not in seen and step is not None:
                waiting += step.reads
            seen.add(id(one))
        return False
