"""Finds products with a diagonal matrix, which only scale rows or columns, and products of which only the diagonal is
used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from benchax.auditing.dataflow import GRADIENT, Body, bodies
from benchax.auditing.derivatives import FORWARD, REVERSE, scope_behind
from benchax.auditing.diagonals import diagonal_axes, identity_of
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Tried, gain_of_part, rule, try_variant
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr
from benchax.auditing.work import elements, operations
from benchax.case import make_case
from benchax.results.audit import Finding
from benchax.units import count, size

PRODUCT = "dot_general"
LEAST_ROWS, LEAST_FLOPS = 32, 1 << 24
"""Of the diagonal, and of the product."""


@dataclass(frozen=True)
class _Diagonal:
    """A product of which one factor is diagonal, or the result is used along its diagonal alone."""

    step: TracedEquation
    matrix: TracedValue
    is_factor: bool
    rows: int
    """Of the diagonal."""
    needed: int
    """Operations of what would do."""


@rule("diagonal-matmul", "are diagonals taken and scaled by without a whole matrix?", "warning", needs_trace_only=True)
def diagonal_matmul(e: Evidence) -> Iterable[Finding]:
    told: set[str] = set()
    for body in bodies(closed_jaxpr(e)):
        for found in _diagonals(body):
            is_large = found.rows >= LEAST_ROWS and operations(found.step) >= LEAST_FLOPS
            if is_large and GRADIENT not in found.step.scope and found.step.line not in told:
                told.add(found.step.line)
                yield _finding(e, found)


def _diagonals(body: Body) -> Iterator[_Diagonal]:
    readers = {id(value): step for step in body.program.steps for value in step.reads}
    for step in body.program.steps:
        if step.name == PRODUCT:
            yield from _of_factors(body, step)
        elif step.name in ("mul", "select_n"):
            yield from _of_mask(body, step, readers)
        elif step.name == "cond":
            yield from _of_platforms(body, step)


def _of_factors(body: Body, step: TracedEquation) -> Iterator[_Diagonal]:
    for side, matrix in enumerate(step.reads):
        axes, identity = diagonal_axes(body, matrix), identity_of(body, matrix)
        # Rows of an identity along which somebody differentiates are no factor that anybody wrote.
        if axes is None or identity is None or scope_behind(identity, step).startswith((FORWARD, REVERSE)):
            continue
        contracted, batched = (pair[side] for pair in step.equation.params["dimension_numbers"])
        if len(contracted) == 1 and contracted[0] in axes and not set(axes) & set(batched):
            yield _Diagonal(step, matrix, True, matrix.shape[axes[0]], elements(step.makes[0]))


def _of_mask(body: Body, step: TracedEquation, readers: dict[int, TracedEquation]) -> Iterator[_Diagonal]:
    """A product of which a mask leaves the diagonal, which is then summed: what `jnp.trace` does."""
    axes, reader = diagonal_axes(body, step.makes[0]), readers.get(id(step.makes[0]))
    if axes is None or reader is None or reader.name != "reduce_sum" or body.uses[id(step.makes[0])] != 1:
        return
    if set(axes) & set(reader.equation.params["axes"]):
        yield from _products(body, step.reads)


def _of_platforms(body: Body, step: TracedEquation) -> Iterator[_Diagonal]:
    """What `jnp.diagonal` does, and `jnp.diag` of a matrix: one way on each platform, one of them by the identity."""
    chosen = body.maker(step.reads[0])
    if chosen is None or chosen.name != "platform_index" or len(step.makes) != 1:
        return
    operands = step.reads[1:]
    is_masked = [diagonal_axes(body, value) == (0, 1) and len(value.shape) == 2 for value in operands]
    if len(operands) == 2 and any(is_masked) and step.makes[0].shape == operands[0].shape[:1]:
        yield from _products(body, operands)


def _products(body: Body, values: tuple[TracedValue, ...]) -> Iterator[_Diagonal]:
    """Those that nothing else reads."""
    for value in values:
        product = body.maker(value)
        if product is not None and product.name == PRODUCT and body.uses[id(value)] == 1:
            rows = min(value.shape[-2:])
            yield _Diagonal(product, value, False, rows, int(operations(product)) // max(1, rows))


def _finding(e: Evidence, found: _Diagonal) -> Finding:
    tried = _try_scaling(e, found)
    matrix = found.matrix
    seen = [
        (
            f"{count(operations(found.step), 'FLOP')} for a product of which {count(found.needed, 'FLOP')} would do, "
            f"and {matrix.spec}, {size(matrix.size_bytes)}, in between"
        ),
        tried.sentence,
    ]
    return diagonal_matmul.finding(
        f"multiplies with a diagonal matrix, {matrix.spec}"
        if found.is_factor
        else f"makes all of a product, {matrix.spec}, and uses its diagonal",
        seen,
        _OF_FACTOR if found.is_factor else _OF_RESULT,
        where=where_of(found.step.line) or e.def_where,
        gain=gain_of_part(e, tried.gain, "this product"),
    )


_OF_FACTOR = (
    "Scale by broadcasting, without the matrix: w[:, None] * a in place of jnp.diag(w) @ a, a * w in place of "
    "a @ jnp.diag(w)."
)
_OF_RESULT = (
    "Compute the diagonal alone: jnp.sum(a * b.T) in place of jnp.trace(a @ b), jnp.einsum('ij,ji->i', a, b) in place "
    "of jnp.diag(a @ b)."
)


def _try_scaling(e: Evidence, found: _Diagonal) -> Tried:
    """Of one of a batch."""
    n = found.rows
    dtype = found.step.makes[0].dtype
    if found.is_factor:
        other = next(value for value in found.step.reads if value is not found.matrix)
        others = max(1, elements(other) // (n * max(1, elements(found.matrix) // n**2)))
        inputs, pair = (f"{dtype}[{n}]", f"{dtype}[{n},{others}]"), (_multiply_diagonal, _scale)
    else:
        (contracted, _), _ = found.step.equation.params["dimension_numbers"]
        k = math.prod(found.step.reads[0].shape[axis] for axis in contracted)
        inputs, pair = (f"{dtype}[{n},{k}]", f"{dtype}[{k},{n}]"), (_trace_product, _sum_products)
    before, after = (make_case(fn, inputs, name=fn.__name__.strip("_")) for fn in pair)
    return try_variant(e, "scaling" if found.is_factor else "the diagonal alone", after, before)


def _multiply_diagonal(w: jax.Array, a: jax.Array) -> jax.Array:
    return jnp.diag(w) @ a


def _scale(w: jax.Array, a: jax.Array) -> jax.Array:
    return w[:, None] * a


def _trace_product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.trace(a @ b)


def _sum_products(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.sum(a * b.T)
