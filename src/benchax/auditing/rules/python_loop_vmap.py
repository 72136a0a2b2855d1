"""Finds a Python loop over the parts of an array, each iteration for itself: one `jax.vmap` would do them all."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import rule
from benchax.auditing.syntax import calls
from benchax.auditing.traced import closed_jaxpr, count_equations
from benchax.auditing.unrolled import loops_of
from benchax.results.audit import Finding

FEW, SOME = 4, 8
"""Iterations; below the first a loop costs little, below the second it is an info."""
ADVICE = (
    "Write the body as a function of one part, and call jax.vmap(body{axes}) on the whole array: the program is then "
    "as long as one iteration, and the device sees the whole batch. Sum afterwards what the loop summed up."
)
PLATE = (
    "Make one site of them, in a plate: with numpyro.plate(name, n): x = numpyro.sample(...), and compute with the "
    "whole array. The program is then as long as one iteration."
)


@rule("python-loop-vmap", "does a Python loop do what vmap could?", "warning", needs_trace_only=True)
def python_loop_vmap(e: Evidence) -> Iterable[Finding]:
    total = count_equations(closed_jaxpr(e))
    for loop in loops_of(e):
        slices = loop.slices
        if slices is None or loop.iterations < FEW or not loop.is_batch:
            continue
        # in_axes=0 is what vmap takes without being told.
        axes = "" if slices.axis == 0 else f", in_axes={slices.axis}"
        yield python_loop_vmap.finding(
            f"the {loop.kind} takes an array apart and does the same with each of {loop.iterations} parts",
            [
                f"{slices.starts} parts are taken out of an array {slices.spec} along axis {slices.axis}",
                f"{loop.size} of the program's {total} operations are {loop.iterations} copies of its body",
                "no iteration needs another's result, sums apart",
            ],
            PLATE if _samples(loop.loop) else ADVICE.format(axes=axes),
            where=loop.where,
            severity="info" if loop.iterations < SOME else None,
        )


def _samples(loop: ast.AST) -> bool:
    """Does it make sample sites of numpyro, which jax.vmap cannot map?"""
    return any(ast.unparse(call.func) == "numpyro.sample" for call in calls(loop, "sample"))
