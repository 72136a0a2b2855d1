"""Matrices that are made though their structure makes them unnecessary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Instead, Match, NotApplicable, arrays_of_call, rule
from benchax.program.index import MOVES, TracedOp, Value
from benchax.program.patterns import identity_axes
from benchax.units import count, percent, size

PACK = "numerics"
LEAST_SAVED = 1 << 24
"""FLOP, about 0.2 ms on one core."""

# ---- explicit-inverse ------------------------------------------------------------------------------------------------

LEAST_ROWS, FEW_COLUMNS = 96, 4
"""Rows, and rows for each column. With both, on one core and in float32, an inverse and its product take 1.4 times as
long as a solve of 100 rows. With 800 rows they take 2 to 2.8 times as long; with 64 rows only 1.2 times (jaxlib 0.10.2,
CPU)."""


@rule("explicit-inverse", "are systems solved without an inverse?", "warning", traced=True, pack=PACK)
def explicit_inverse(e: Evidence) -> Iterator[Match]:
    """Finds inverses that are made only to be multiplied by a few columns, which a solve needs no inverse for."""
    for op in e.program.find("triangular_solve", "custom_linear_solve"):
        solves, factor = _solves_of_identity(op), _factor(op)
        products = _products_of(op.makes[0]) if solves else None
        rows = op.makes[0].shape[-1] if op.makes[0].shape else 0
        columns = sum(product.makes[0].size for product in products or ()) // max(1, op.makes[0].size // max(1, rows))
        if not products or rows < max(LEAST_ROWS, FEW_COLUMNS * columns):
            continue
        by_column, of_factor = solves * op.makes[0].size, factor.work if factor else 0.0
        flops = of_factor + by_column * rows + sum(one.work for one in products)
        least = of_factor + by_column * columns
        saved = (flops - least) * (op.body.trips or 1)
        if saved < LEAST_SAVED:
            continue
        kind = factor.name if factor and solves > 1 else "cholesky" if solves > 1 else "triangular"
        dtype, what = op.makes[0].dtype, "one column" if columns == 1 else f"{count(columns)} columns"
        advice, now, better = _SOLVES[kind]
        yield Match(
            f"inverts a matrix, {op.makes[0].spec}, to multiply it by {what}",
            [
                f"{count(flops, 'FLOP')} for an inverse of {rows} columns; {columns} would do: {count(least, 'FLOP')}",
                *(f"multiplied{one.at}" for one in products if one.line != op.line),
            ],
            f"{advice} A solve also loses fewer digits if the matrix is nearly singular.",
            op=op,
            instead=Instead(
                "solved", "this solve", now, better, (f"{dtype}[{rows},{rows}]", f"{dtype}[{rows},{columns}]")
            ),
            lost=(saved, max(saved, e.program.body.work)),
        )


def _solves_of_identity(op: TracedOp) -> int:
    """How many triangular solves have made an inverse from an identity; 0 for any other value."""
    shape, made = op.makes[0].shape, op.reads[-1].back()
    # The work of an iterative solver, which has no factor, is not known.
    if len(shape) < 2 or shape[-1] != shape[-2] or (op.name == "custom_linear_solve" and not _factor(op)):
        return 0
    if identity_axes(op.reads[-1]) is not None:
        return 2 if op.name == "custom_linear_solve" else 1
    before = _solves_of_identity(made.maker) if made.maker is not None and made.maker.name == "triangular_solve" else 0
    return before + 1 if before and made.uses == 1 else 0


def _factor(op: TracedOp) -> TracedOp | None:
    """The factorization that a solve reads, perhaps with its other triangle masked."""
    behind = (one.maker for read in op.reads[:-1] for one in read.behind(MOVES | {"select_n", "mul"}))
    return next((maker for maker in behind if maker is not None and maker.name in ("lu", "cholesky")), None)


def _products_of(inverse: Value) -> list[TracedOp] | None:
    """The products that read it; None if anything else does, or if it is squared or summed over both axes. A derivative
    reads it for the derivative of the inverse, which a solve doesn't have."""
    found, waiting = list[TracedOp](), [inverse]
    for value in waiting:
        for reader in (reader for reader in value.readers if not reader.is_backward):
            sides = [i for i, read in enumerate(reader.reads) if read is value]
            if reader.makes[0].view(scaled=True).source is inverse and reader.makes[0].size == inverse.size:
                waiting.append(reader.makes[0])
            elif reader.name == "dot_general" and [len(reader.params["dimension_numbers"][0][i]) for i in sides] == [1]:
                found.append(reader)
            else:
                return None
    return found if not any(value.is_output for value in waiting) else None


def _well(a: jax.Array) -> jax.Array:
    """A matrix far from singular, made from one of random numbers."""
    return a + a.shape[0] * jnp.eye(a.shape[0], dtype=a.dtype)


_SOLVES = {
    "lu": (
        (
            "Solve instead: jnp.linalg.solve(a, b) for jnp.linalg.inv(a) @ b, jnp.linalg.solve(a.T, b.T).T for "
            "b @ jnp.linalg.inv(a); if a is positive definite, jax.scipy.linalg.solve(a, b, assume_a='pos')."
        ),
        lambda a, b: jnp.linalg.inv(_well(a)) @ b,
        lambda a, b: jnp.linalg.solve(_well(a), b),
    ),
    "cholesky": (
        (
            "Solve for the columns themselves: jax.scipy.linalg.cho_solve(factor, b), or jax.scipy.linalg.solve(a, b, "
            "assume_a='pos'), instead of the inverse times b."
        ),
        lambda a, b: cho_solve((_well(a), True), jnp.eye(a.shape[0], dtype=a.dtype)) @ b,
        lambda a, b: cho_solve((_well(a), True), b),
    ),
    "triangular": (
        (
            "Solve for the columns themselves: jax.scipy.linalg.solve_triangular(l, b, lower=True) instead of the "
            "inverse of l times b."
        ),
        lambda a, b: solve_triangular(_well(a), jnp.eye(a.shape[0], dtype=a.dtype), lower=True) @ b,
        lambda a, b: solve_triangular(_well(a), b, lower=True),
    ),
}

# ---- sparse-matmul ---------------------------------------------------------------------------------------------------

SPARSE_ELEMENTS, MOST_SHARE = 1 << 18, 1 / 128
"""The size of the matrix, and the share of its entries that are not zero. On a core of a CPU both ways take the same
time at about 1/64 (f32, 600 to 4000 rows, 1 to 64 columns)."""


@rule(
    "sparse-matmul",
    "are products with sparse matrices done on what is not zero?",
    "warning",
    traced=True,
    pack=PACK,
    advice=(
        "Keep the entries that are not zero: jax.ops.segment_sum(values[:, None] * x[columns], rows, n), or "
        "jax.experimental.sparse.BCOO.fromdense(a) @ x. For a banded matrix, as of differences on a grid, "
        "write the neighbors out: x[1:] - x[:-1], or jnp.roll."
    ),
)
def sparse_matmul(e: Evidence) -> Iterator[Match]:
    """Finds products with a matrix that is nearly all zeros: an adjacency, a finite difference, an incidence."""
    if len(e.data) != len(e.program.inputs):
        raise NotApplicable("its arguments were not kept")
    carried = {e.program.inputs[at] for at, _ in e.use.carried.positions}
    same = {value for i, value in enumerate(e.program.inputs) if i in e.use.repeated} | set(e.program.consts)
    known = {**arrays_of_call(e), **{value: value.const for value in e.program.consts}}
    entries = {value: n for value, array in known.items() if value not in carried and (n := _entries(array))}
    for op in e.program.find("dot_general") if entries else ():
        contracted, batched = op.params["dimension_numbers"]
        for side, matrix in enumerate(op.reads):
            source = matrix.view(scaled=True, out=True).source
            # What is multiplied once, in a program that is called once, need not be fast.
            if source not in entries or any(batched) or not (source in same or op.body.is_repeated):
                continue
            columns, dense = op.reads[1 - side].size // matrix.shape[contracted[side][0]], np.asarray(known[source])
            rows, places = np.nonzero(dense)
            x, kept = np.ones((dense.shape[1], columns), dense.dtype), dense[rows, places]
            yield Match(
                f"multiplies by {matrix.spec}; {percent(entries[source] / dense.size)} of it is not zero",
                [f"{count(entries[source])} of {count(dense.size)} entries, in {size(dense.nbytes)}{op.at}"],
                op=op,
                instead=Instead(
                    "by its entries",
                    "this product",
                    lambda matrix, values, rows, places, x: matrix @ x,
                    lambda matrix, values, rows, places, x: jax.ops.segment_sum(
                        values[:, None] * x[places], rows, matrix.shape[0]
                    ),
                    (dense, kept, rows, places, x),
                ),
            )


def _entries(array: Any) -> int:
    """Entries that are not zero, of a matrix if they are few; 0 otherwise."""
    is_matrix = getattr(array, "ndim", 0) == 2 and array.size >= SPARSE_ELEMENTS
    n = int(np.count_nonzero(np.asarray(array))) if is_matrix and jnp.issubdtype(array.dtype, np.number) else 0
    return n if is_matrix and n <= MOST_SHARE * array.size else 0
