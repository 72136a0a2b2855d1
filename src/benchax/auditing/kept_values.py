"""Values inside of a program, computed from the inputs of one call that were kept.

Only values of the outermost program are, for those of loops and branches need all that goes before, and only what they
are made of is computed: once, compiled, without effects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from benchax.auditing.dataflow import Body
from benchax.auditing.evidence import Evidence
from benchax.auditing.tolerance_runs import evaluate
from benchax.auditing.traced import TracedProgram, TracedValue, closed_jaxpr
from benchax.errors import NotMeasured

MOST_STEPS = 500
"""Behind the values; more take long to compile."""


def compute_values(e: Evidence, body: Body, values: Sequence[TracedValue]) -> list[np.ndarray]:
    """What they were in the call whose inputs were kept, in a program that takes its constants as inputs.

    Raises:
        NotMeasured: none were kept, or they stand in a loop or branch, or too much is behind them.
    """
    program = body.program
    if body.of is not None:
        raise NotMeasured("it stands in a loop or branch, whose values were not computed")
    given = (*closed_jaxpr(e).consts, *e.data)
    if len(given) != len(program.inputs):
        raise NotMeasured("what it was called with was not kept, which is done of small arrays")
    steps = _behind(body, values)
    if len(steps) > MOST_STEPS:
        raise NotMeasured(f"it is made by {len(steps)} operations, which were not computed again")
    read = {id(value) for step in program.steps if id(step) in steps for value in step.reads} | set(map(id, values))
    needed = {value: one for one, value in zip(given, program.inputs, strict=True) if id(value) in read}
    if any(one is None for one in needed.values()):
        raise NotMeasured("an array that it depends on was too large to be kept")
    part = TracedProgram(tuple(needed), tuple(step for step in program.steps if id(step) in steps), ())

    def compute(*inputs: Any) -> list[Any]:
        known = evaluate(part, inputs)
        return [known[id(value)] for value in values]

    return [np.asarray(one) for one in jax.jit(compute)(*(_typed(one, value) for value, one in needed.items()))]


def _typed(one: Any, value: TracedValue) -> Any:
    """An input with the dtype that the program has it in, but for random keys, which NumPy does not know."""
    return one if value.is_of(jax.dtypes.extended) else np.asarray(one, value.dtype)


def _behind(body: Body, values: Sequence[TracedValue]) -> set[int]:
    """The steps that make them, by their ids."""
    found, waiting = set[int](), list(values)
    while waiting:
        step = body.maker(waiting.pop())
        if step is not None and id(step) not in found:
            found.add(id(step))
            waiting += step.reads
    return found
