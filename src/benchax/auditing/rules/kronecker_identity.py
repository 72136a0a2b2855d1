"""Finds products with `jnp.kron(a, jnp.eye(n))`, which apply the small matrix along one axis."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp

from benchax.auditing.dataflow import GRADIENT, Body, bodies
from benchax.auditing.diagonals import KEEPS, is_identity
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Tried, gain_of_part, rule, try_variant
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr, first_of_each_line
from benchax.auditing.work import elements
from benchax.case import make_case
from benchax.results.audit import Finding
from benchax.units import count, size

LEAST_ELEMENTS, LEAST_SAVED = 1 << 16, 4
"""Of the matrix, and times that it is larger than what would do."""
MOVES = (*KEEPS, "reshape", "transpose")
ADVICE = (
    "Give the vector an axis for each factor, and multiply along one: x.reshape(left, k, right), then "
    'jnp.einsum("ij,ljr->lir", a, x).reshape(-1). The large matrix is never made.'
)


class _Kronecker(NamedTuple):
    """A product with a matrix that is a Kronecker product with identities."""

    step: TracedEquation
    matrix: TracedValue
    rows: int
    of_identities: int
    columns: int
    """Of what it is multiplied with."""

    @property
    def small(self) -> int:
        """Rows of the factor that is no identity."""
        return self.rows // self.of_identities


@rule("kronecker-identity", "are small matrices applied along their axis?", "warning", needs_trace_only=True)
def kronecker_identity(e: Evidence) -> Iterable[Finding]:
    found = (one for body in bodies(closed_jaxpr(e)) for one in _products(body))
    yield from (_finding(e, one) for one in first_of_each_line(found))


def _products(body: Body) -> Iterator[_Kronecker]:
    for step in body.program.steps:
        if step.name != "dot_general" or GRADIENT in step.scope:
            continue
        for matrix, other in (step.reads, step.reads[::-1]):
            if len(matrix.shape) == 2 and elements(matrix) >= LEAST_ELEMENTS:
                rows, n = matrix.shape[0], _rows_of_identities(body, matrix)
                if LEAST_SAVED <= n < rows:
                    yield _Kronecker(step, matrix, rows, n, elements(other) // rows)


def _rows_of_identities(body: Body, value: TracedValue) -> int:
    """The product of the sizes of the identities in a Kronecker product; 1: there is none in it."""
    body, value = body.origin(body.through(value, MOVES))
    value = body.through(value, MOVES)
    step = body.maker(value)
    if step is not None and is_identity(body, step):
        return value.shape[0]
    if step is None or step.name != "mul" or len(value.shape) != 4:
        return 1
    for reads in (step.reads, step.reads[::-1]):
        factors = [factor for at, read in enumerate(reads) if (factor := _factor(body, read, at)) is not None]
        if len(factors) == 2:
            return math.prod(_rows_of_identities(*factor) for factor in factors)
    return 1


def _factor(body: Body, read: TracedValue, at: int) -> tuple[Body, TracedValue] | None:
    """The matrix whose axes are at 0 and 2, or at 1 and 3, of four, as in `jnp.kron`."""
    body, read = body.origin(read)
    step = body.maker(read)
    others = (read.shape[1 - at], read.shape[3 - at]) if len(read.shape) == 4 else (0, 0)
    if step is None or others != (1, 1) or step.name not in ("broadcast_in_dim", "reshape", "expand_dims"):
        return None
    return (body, step.reads[0]) if len(step.reads[0].shape) == 2 else None


def _finding(e: Evidence, found: _Kronecker) -> Finding:
    tried = _try_axis(e, found)
    return kronecker_identity.finding(
        f"multiplies with {found.matrix.spec}, the Kronecker product of {count(found.small)} rows with identities",
        [
            f"the matrix has {size(found.matrix.size_bytes)}{found.step.at}",
            f"along one axis it takes 1 in {count(found.of_identities)} of these operations",
            tried.sentence,
        ],
        ADVICE,
        where=where_of(found.step.line) or e.def_where,
        gain=gain_of_part(e, tried.gain, "this product"),
    )


def _try_axis(e: Evidence, found: _Kronecker) -> Tried:
    dtype = found.matrix.dtype
    given = (jnp.ones((found.small,) * 2, dtype), jnp.ones((found.rows, found.columns), dtype))
    by_kronecker, by_axis = (make_case(fn, given, name=fn.__name__.strip("_")) for fn in (_by_kronecker, _by_axis))
    return try_variant(e, "along one axis", by_axis, by_kronecker)


def _by_kronecker(a: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.kron(jnp.eye(x.shape[0] // a.shape[0], dtype=a.dtype), a) @ x


def _by_axis(a: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.einsum("ij,ljc->lic", a, x.reshape(-1, a.shape[0], x.shape[1])).reshape(x.shape)
