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
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr, first_of_each_line
from benchax.auditing.work import elements, operations
from benchax.case import make_case
from benchax.results.audit import Finding
from benchax.units import count, size

PRODUCT = "dot_general"
LEAST_ROWS, LEAST_FLOPS = 32, 1 << 24
"""Of the diagonal, and of the product."""
BY_ELEMENT = ("abs", "add", "convert_element_type", "copy", "div", "exp", "integer_pow", "mul", "neg", "square", "sub")
"""The diagonal of what these make is made of the diagonals of what they read."""


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
    found = (one for body in bodies(closed_jaxpr(e)) for one in _diagonals(body))
    large = (one for one in found if one.rows >= LEAST_ROWS and operations(one.step) >= LEAST_FLOPS)
    own = (one for one in large if GRADIENT not in one.step.scope)
    yield from (_finding(e, one) for one in first_of_each_line(own))


def _diagonals(body: Body) -> Iterator[_Diagonal]:
    for step in body.program.steps:
        if step.name == PRODUCT:
            yield from _of_factors(body, step)
        elif step.name in ("mul", "select_n"):
            yield from _of_mask(body, step)
        elif step.name == "cond":
            yield from _of_platforms(body, step)
        elif step.name == "gather" and _takes_diagonal(body, step):
            yield from _products(body, step.reads[:1], step.reads[0].shape[-1])


def _of_factors(body: Body, step: TracedEquation) -> Iterator[_Diagonal]:
    for side, matrix in enumerate(step.reads):
        axes, identity = diagonal_axes(body, matrix), identity_of(body, matrix)
        # Rows of an identity along which somebody differentiates are no factor that anybody wrote.
        if axes is None or identity is None or scope_behind(identity, step).startswith((FORWARD, REVERSE)):
            continue
        contracted, batched = (pair[side] for pair in step.equation.params["dimension_numbers"])
        if len(contracted) == 1 and contracted[0] in axes and not set(axes) & set(batched):
            yield _Diagonal(step, matrix, True, matrix.shape[axes[0]], elements(step.makes[0]))


def _of_mask(body: Body, step: TracedEquation) -> Iterator[_Diagonal]:
    """A product of which a mask leaves the diagonal, which is then summed: what `jnp.trace` does."""
    axes, readers = diagonal_axes(body, step.makes[0]), body.readers(step.makes[0])
    if axes is None or [one.name for one in readers] != ["reduce_sum"] or body.uses[id(step.makes[0])] != 1:
        return
    if set(axes) & set(readers[0].equation.params["axes"]):
        yield from _products(body, step.reads, step.makes[0].shape[axes[0]])


def _of_platforms(body: Body, step: TracedEquation) -> Iterator[_Diagonal]:
    """What `jnp.diagonal` does, and `jnp.diag` of a matrix: one way on each platform, one of them by the identity."""
    chosen = body.maker(step.reads[0])
    if chosen is None or chosen.name != "platform_index" or len(step.makes) != 1:
        return
    operands = step.reads[1:]
    masks = [value for value in operands if len(value.shape) == 2 and diagonal_axes(body, value) == (0, 1)]
    others = [value for value in operands if not any(value is mask for mask in masks)]
    if len(masks) != 1 or len(others) != 1:
        return
    # Under vmap the mask is one for all matrices of a batch.
    if elements(step.makes[0]) * masks[0].shape[0] == elements(others[0]):
        yield from _products(body, tuple(others), masks[0].shape[0])


def _takes_diagonal(body: Body, step: TracedEquation) -> bool:
    """Does it take x[..., i, i] for all i: `jnp.diagonal` of a batch, or two indices that are the same range?"""
    taken, index = step.reads[0], body.maker(step.reads[1])
    numbers, n_axes = step.equation.params["dimension_numbers"], len(taken.shape)
    if index is None or index.name != "concatenate" or len(index.reads) != 2 or n_axes < 2:
        return False
    is_of_matrix = sorted(numbers.start_index_map) == sorted(numbers.collapsed_slice_dims) == [n_axes - 2, n_axes - 1]
    return is_of_matrix and all(_counts_up(body, value, taken.shape[-1]) for value in index.reads)


def _counts_up(body: Body, value: TracedValue, n: int) -> bool:
    """Is it 0, 1, … n - 1, as an index that may be negative is made of it?"""
    step = body.maker(value)
    while step is not None and step.name in ("broadcast_in_dim", "select_n", "convert_element_type", "reshape"):
        step = body.maker(step.reads[1 if step.name == "select_n" else 0])
    return step is not None and step.name == "iota" and step.makes[0].shape == (n,)


def _products(body: Body, values: tuple[TracedValue, ...], rows: int) -> Iterator[_Diagonal]:
    """Those that nothing else reads, also behind operations by element: `jnp.diag(k - a @ b)`."""
    waiting, seen = list(values), set[int]()
    while waiting:
        value = waiting.pop()
        step = body.maker(value)
        if step is None or id(value) in seen or body.uses[id(value)] != 1:
            continue
        seen.add(id(value))
        if step.name == PRODUCT:
            yield _Diagonal(step, value, False, rows, int(operations(step)) // max(1, rows))
        elif step.name == "transpose" or step.name in BY_ELEMENT:
            waiting += [read for read in step.reads if elements(read) == elements(value)]


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
    "of jnp.diag(a @ b). The diagonal of a sum is the sum of the diagonals: jnp.diag(k) - jnp.einsum('ij,ji->i', a, b) "
    "in place of jnp.diag(k - a @ b)."
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
