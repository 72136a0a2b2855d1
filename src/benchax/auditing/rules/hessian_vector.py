"""Finds whole Jacobians and Hessians of which only the product with a vector is used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from benchax.auditing.dataflow import Body, bodies
from benchax.auditing.derivatives import DERIVATIVE, MOVES, where_made
from benchax.auditing.diagonals import is_identity
from benchax.auditing.evidence import Evidence
from benchax.auditing.matrix_products import Products, products_with
from benchax.auditing.rule import rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr
from benchax.results.audit import Finding, Severity
from benchax.source_files import owner_of
from benchax.units import count, size

LEAST = 32
"""Columns of the identity: of fewer, a product saves little."""
FEW = 4
"""Times as many columns as vectors at least."""

ADVICE = (
    "Take the product itself: jax.jvp(f, (x,), (v,))[1] is the Jacobian times v, jax.vjp(f, x)[1](v) is v times "
    "the Jacobian, and jax.jvp(jax.grad(f), (x,), (v,))[1] is the Hessian times v."
)

Bases = Mapping[int, TracedEquation]
"""Identities, by the id of their value."""


@rule("hessian-vector", "is a Jacobian made only where all of it is used?", "warning", needs_trace_only=True)
def hessian_vector(e: Evidence) -> Iterable[Finding]:
    for body in bodies(closed_jaxpr(e)):
        bases = {id(step.makes[0]): step for step in body.program.steps if is_identity(body, step)}
        for value in (one for step in body.program.steps for one in step.makes) if bases else ():
            products = products_with(body, value)
            basis = _basis(body, value, bases) if products is not None else None
            if products is not None and basis is not None:
                yield from _of_products(e, value, basis, products)


def _of_products(e: Evidence, matrix: TracedValue, basis: TracedEquation, products: Products) -> Iterable[Finding]:
    columns = basis.makes[0].shape[0]
    are_few = FEW * products.vectors <= columns
    if columns >= LEAST and DERIVATIVE not in products.steps[0].scope and (are_few or products.is_of_solver):
        yield _finding(e, matrix, basis, products, "warning" if are_few else "info")


def _basis(body: Body, matrix: TracedValue, bases: Bases) -> TracedEquation | None:
    """The identity that this derivative was taken along; None where it is read elsewhere too, or is none."""
    value = matrix
    while (step := body.maker(value)) is not None:
        if _is_of_derivative(step):
            return _basis_of(body, value, bases)
        if step.name not in MOVES or body.uses[id(step.reads[0])] != 1:
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


def _finding(
    e: Evidence, matrix: TracedValue, basis: TracedEquation, products: Products, severity: Severity
) -> Finding:
    columns, (made, _) = basis.makes[0].shape[0], where_made(basis)
    step = products.steps[-1]
    where = made if made is not None and owner_of(made[0]) == "user" else where_of(step.line)
    needed = _needed(products)
    return hessian_vector.finding(
        f"makes {matrix.spec} of derivatives {needed[0]}",
        [
            f"the derivative is taken along {count(columns)} directions, and {needed[1]}",
            f"the matrix takes {size(matrix.size_bytes)}",
            f"the product{step.at}",
            "gain not measured, because the function that is differentiated is not known apart from this one",
        ],
        ADVICE,
        where=where or e.def_where,
        severity=severity,
    )


def _needed(products: Products) -> tuple[str, str]:
    """(for what the matrix is made, how many directions that needs), for sentences"""
    n = products.vectors
    if products.is_of_solver:
        most = f", which are {count(int(n))} at most" if math.isfinite(n) else ""
        return "for an iterative solver", f"the solver needs one for each of its iterations{most}"
    if n == 1:
        return "for one product with it", "the product needs one"
    return f"for products with {count(int(n))} vectors", f"the products need {count(int(n))}"
