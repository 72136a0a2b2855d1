"""Finds whole Jacobians and Hessians of which only the product with a vector is used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from benchax.auditing.dataflow import Body, bodies
from benchax.auditing.derivatives import DERIVATIVE, MOVES, where_made
from benchax.auditing.diagonals import is_identity
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr
from benchax.results.audit import Finding
from benchax.source_files import owner_of
from benchax.units import count, size

LEAST = 32
"""Columns of the identity: of fewer, a product saves little."""
FEW = 4
"""Vectors at most: one in so many of the columns."""

Bases = Mapping[int, TracedEquation]
"""Identities, by the id of their value."""


@rule("hessian-vector", "is a Jacobian made only where all of it is used?", "warning", needs_trace_only=True)
def hessian_vector(e: Evidence) -> Iterable[Finding]:
    for body in bodies(closed_jaxpr(e)):
        bases = {id(step.makes[0]): step for step in body.program.steps if is_identity(body, step)}
        if not bases:
            continue
        for step in body.program.steps:
            if step.name == "dot_general" and DERIVATIVE not in step.scope:
                yield from _of_product(e, body, step, bases)


def _of_product(e: Evidence, body: Body, step: TracedEquation, bases: Bases) -> Iterable[Finding]:
    for side in (0, 1):
        matrix, other = step.reads[side], step.reads[1 - side]
        (contracted, _), (_, batched) = (
            (axes[side], axes[1 - side]) for axes in step.equation.params["dimension_numbers"]
        )
        vectors = math.prod(other.shape) // max(1, math.prod(matrix.shape[axis] for axis in contracted))
        basis = _basis(body, matrix, bases)
        if basis is not None and not batched and basis.makes[0].shape[0] >= max(LEAST, FEW * vectors):
            yield _finding(e, step, matrix, basis)


def _basis(body: Body, matrix: TracedValue, bases: Bases) -> TracedEquation | None:
    """The identity that this derivative was taken along; None where it is used twice, or is none."""
    value = matrix
    while body.uses[id(value)] == 1 and (step := body.maker(value)) is not None:
        if _is_of_derivative(step):
            return _basis_of(body, value, bases)
        if step.name not in MOVES:
            return None
        value = step.reads[0]
    return None


def _basis_of(body: Body, value: TracedValue, bases: Bases) -> TracedEquation | None:
    """Back through the derivative alone: points that are made of an identity are no directions."""
    seen, waiting = set[int](), [value]
    while waiting:
        one = waiting.pop()
        if id(one) in bases:
            return bases[id(one)]
        step = body.maker(one)
        if id(one) not in seen and step is not None and (step.name in MOVES or _is_of_derivative(step)):
            waiting += step.reads
        seen.add(id(one))
    return None


def _is_of_derivative(step: TracedEquation) -> bool:
    return DERIVATIVE in step.scope and "vmap(" in step.scope


def _finding(e: Evidence, step: TracedEquation, matrix: TracedValue, basis: TracedEquation) -> Finding:
    columns, (made, _) = basis.makes[0].shape[0], where_made(basis)
    where = made if made is not None and owner_of(made[0]) == "user" else where_of(step.line)
    return hessian_vector.finding(
        f"makes {matrix.spec} of derivatives for one product with it",
        [
            (
                f"the derivative is taken along {count(columns)} directions, and the product needs one for each "
                f"vector: about {count(columns)} times the work, and {size(matrix.size_bytes)} for the matrix"
            ),
            f"the product{step.at}",
            "gain not measured, because the function that is differentiated is not known apart from this one",
        ],
        "Take the product itself: jax.jvp(f, (x,), (v,))[1] is the Jacobian times v, jax.vjp(f, x)[1](v) is v times "
        "the Jacobian, and jax.jvp(jax.grad(f), (x,), (v,))[1] is the Hessian times v.",
        where=where or e.def_where,
    )
