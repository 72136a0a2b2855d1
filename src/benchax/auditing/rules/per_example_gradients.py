"""Finds gradients of each example of a batch of which only the sum is used: `jax.vmap(jax.grad(loss))`, then a mean."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax

from benchax.auditing.dataflow import GRADIENT, Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Gain, NotApplicable, list_some, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import count, size

OF_EXAMPLES = "vmap(transpose("
"""In the scope of what a derivative inside of a `vmap` makes; one of a whole batch has it the other way round."""
TOLD_SINCE = (0, 7)
"""JAX 0.8.3 and newer ones tell it, 0.6.2 does not."""
LEAST_EXAMPLES, LEAST_BYTES = 8, 1 << 23
PASSES = ("transpose", "convert_element_type", "mul", "div", "neg")
ADVICE = (
    "Differentiate the mean: jax.grad(lambda p: jax.vmap(loss, (None, 0))(p, xs).mean()). The sum over the batch is "
    "then part of the products that make the gradient, and no example has one of its own."
)


class _Summed(NamedTuple):
    """Gradients of all examples, and what adds them up."""

    step: TracedEquation
    gradients: TracedValue


@rule("per-example-gradients", "is the mean differentiated, not each example?", "warning", needs_trace_only=True)
def per_example_gradients(e: Evidence) -> Iterable[Finding]:
    every = list(bodies(closed_jaxpr(e)))
    if not any(OF_EXAMPLES in step.scope for body in every for step in body.program.steps):
        if jax.__version_info__ < TOLD_SINCE:
            raise NotMeasured("this JAX does not tell what a derivative inside of a vmap has made")
        raise NotApplicable("no derivative is taken inside of a vmap")
    lines: dict[str, list[_Summed]] = {}
    for one in (one for body in every for one in _summed(body)):
        lines.setdefault(one.step.line, []).append(one)
    for summed in lines.values():
        if sum(one.gradients.size_bytes for one in summed) >= LEAST_BYTES:
            yield _finding(e, sorted(summed, key=lambda one: -one.gradients.size_bytes))


def _summed(body: Body) -> Iterator[_Summed]:
    for step in body.program.steps:
        if step.name != "reduce_sum" or GRADIENT in step.scope or 0 not in step.equation.params["axes"]:
            continue
        gradients = _gradients_behind(body, step.reads[0])
        if gradients is not None and len(gradients.shape) > 1 and gradients.shape[0] >= LEAST_EXAMPLES:
            yield _Summed(step, gradients)


def _gradients_behind(body: Body, value: TracedValue) -> TracedValue | None:
    """What is added up, if nothing else reads it: whoever clips the gradient of each example needs it."""
    while body.uses[id(value)] == 1 and (step := body.maker(value)) is not None:
        if OF_EXAMPLES in step.scope:
            return value
        if step.name not in PASSES:
            return None
        value = max(step.reads, key=lambda read: read.size_bytes)
    return None


def _finding(e: Evidence, summed: list[_Summed]) -> Finding:
    step, largest = summed[0]
    total = sum(one.gradients.size_bytes for one in summed)
    needed = sum(one.gradients.size_bytes // one.gradients.shape[0] for one in summed)
    return per_example_gradients.finding(
        f"makes a gradient for each of {count(largest.shape[0])} examples and uses their sum",
        [
            *list_some([f"{one.gradients.spec}, {size(one.gradients.size_bytes)}{one.step.at}" for one in summed]),
            f"{size(total)} of gradients together, and {size(needed)} of their sums",
        ],
        ADVICE,
        where=where_of(step.line) or e.def_where,
        gain=Gain(f"estimated: at most {size(total - needed)} of memory"),
    )
