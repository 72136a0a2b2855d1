"""How many vectors a matrix is multiplied with, where a program does nothing else with it.

Also in loops, and in the iterative solvers of `jax.scipy.sparse.linalg`: a matrix that does not change there is an
input of their bodies, which are programs of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import jax.numpy as jnp

from benchax.auditing.dataflow import Body
from benchax.auditing.traced import TracedEquation, TracedValue, flow

SOLVE = "custom_linear_solve"
"""What the solvers of JAX are in a program, direct ones too."""


class Products(NamedTuple):
    """All products with one matrix."""

    vectors: float
    """At most; infinitely many in a loop that ends when something has converged."""
    steps: tuple[TracedEquation, ...]
    """The products, and loops and solvers in which they are made."""

    @property
    def is_of_solver(self) -> bool:
        return any(step.name == SOLVE for step in self.steps)


def products_with(body: Body, matrix: TracedValue) -> Products | None:
    """None where it is read by anything else, or is given out."""
    steps = body.readers(matrix)
    vectors = [_vectors_of(step, matrix) for step in steps]
    known = [n for n in vectors if n is not None]
    if body.is_output(matrix) or not steps or len(known) < len(steps):
        return None
    return Products(sum(known), tuple(steps))


def _vectors_of(step: TracedEquation, matrix: TracedValue) -> float | None:
    if step.name == "dot_general":
        return _vectors_of_product(step, matrix)
    found = [_vectors_inside(*inside) for inside in _insides(step, matrix)]
    known = [n for n in found if n is not None]
    return sum(known) if found and len(known) == len(found) else None


def _vectors_of_product(step: TracedEquation, matrix: TracedValue) -> int | None:
    side = 0 if step.reads[0] is matrix else 1
    other = step.reads[1 - side]
    (contracted, _), (_, batched) = ((axes[side], axes[1 - side]) for axes in step.equation.params["dimension_numbers"])
    along = math.prod(matrix.shape[axis] for axis in contracted)
    return None if batched or other is matrix else math.prod(other.shape) // max(1, along)


def _vectors_inside(body: Body, at: int, times: float) -> float | None:
    products = products_with(body, body.program.inputs[at])
    return None if products is None else times * products.vectors


def _insides(step: TracedEquation, matrix: TracedValue) -> Iterator[tuple[Body, int, float]]:
    """(the program in which a step reads it, as which input, how often that runs at most)"""
    params = step.equation.params
    for at in (i for i, one in enumerate(step.reads) if one is matrix):
        if step.name == "scan" and at < len(step.split_operands(step.reads).consts):
            yield Body(flow(params["jaxpr"]), of=step), at, params["length"]
        elif step.name == "while" and 0 <= at - params["cond_nconsts"] < params["body_nconsts"]:
            yield Body(flow(params["body_jaxpr"]), of=step), at - params["cond_nconsts"], _most_trips(step)
        elif step.name == SOLVE:
            first, n = sum(params["const_lengths"][:2]), params["const_lengths"].solve
            if first <= at < first + n:  # its other programs are for derivatives
                yield Body(flow(params["jaxprs"].solve), of=step), at - first, 1


def _most_trips(step: TracedEquation) -> float:
    """Of a `while` that goes on only as long as a count in its carry is below a constant."""
    cond = flow(step.equation.params["cond_jaxpr"])
    numbers = [
        int(one.reads[1].literal)
        for one in cond.steps
        if one.name == "lt" and one.reads[0].is_of(jnp.integer) and one.reads[1].literal is not None
    ]
    return min(numbers, default=math.inf)
