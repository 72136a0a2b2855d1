"""Matrices that are made though their structure makes them unnecessary."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import cho_solve, solve_triangular

from benchax.auditing.derivatives import FORWARD, REVERSE, scope_behind
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Instead, Match, NotApplicable, arrays_of_call, rule
from benchax.program.index import ELEMENTWISE, MOVES, TracedOp, TracedProgram, Value
from benchax.program.patterns import Arrays, counted_axis, diagonal_axes, identity_axes, unwrap_index
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


def _invert(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.linalg.inv(_well(a)) @ b


def _solve(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.linalg.solve(_well(a), b)


def _invert_factored(a: jax.Array, b: jax.Array) -> jax.Array:
    return cho_solve((_well(a), True), jnp.eye(a.shape[0], dtype=a.dtype)) @ b


def _solve_factored(a: jax.Array, b: jax.Array) -> jax.Array:
    return cho_solve((_well(a), True), b)


def _invert_triangular(a: jax.Array, b: jax.Array) -> jax.Array:
    return solve_triangular(_well(a), jnp.eye(a.shape[0], dtype=a.dtype), lower=True) @ b


def _solve_triangular(a: jax.Array, b: jax.Array) -> jax.Array:
    return solve_triangular(_well(a), b, lower=True)


_SOLVES = {
    "lu": (
        (
            "Solve instead: jnp.linalg.solve(a, b) for jnp.linalg.inv(a) @ b, jnp.linalg.solve(a.T, b.T).T for "
            "b @ jnp.linalg.inv(a); if a is positive definite, jax.scipy.linalg.solve(a, b, assume_a='pos')."
        ),
        _invert,
        _solve,
    ),
    "cholesky": (
        (
            "Solve for the columns themselves: jax.scipy.linalg.cho_solve(factor, b), or jax.scipy.linalg.solve(a, b, "
            "assume_a='pos'), instead of the inverse times b."
        ),
        _invert_factored,
        _solve_factored,
    ),
    "triangular": (
        (
            "Solve for the columns themselves: jax.scipy.linalg.solve_triangular(l, b, lower=True) instead of the "
            "inverse of l times b."
        ),
        _invert_triangular,
        _solve_triangular,
    ),
}

# ---- diagonal-matmul -------------------------------------------------------------------------------------------------

LEAST_DIAGONAL = 32
OF_FACTOR = "Scale by broadcasting, without the matrix: w[:, None] * a for jnp.diag(w) @ a, a * w for a @ jnp.diag(w)."
OF_RESULT = (
    "Compute the diagonal alone: jnp.sum(a * b.T) for jnp.trace(a @ b), jnp.einsum('ij,ji->i', a, b) for jnp.diag(a "
    "@ b). The diagonal of a sum is the sum of the diagonals: jnp.diag(k) - jnp.einsum('ij,ji->i', a, b) for "
    "jnp.diag(k - a @ b)."
)


@rule("diagonal-matmul", "are diagonals taken and scaled by without a whole matrix?", "warning", traced=True, pack=PACK)
def diagonal_matmul(e: Evidence) -> Iterator[Match]:
    """Finds products with a diagonal matrix, and products whose diagonal alone is used."""
    for op, matrix, rows, is_factor in _diagonals(e.program):
        if rows < LEAST_DIAGONAL or op.work < LEAST_SAVED:
            continue
        dtype, (contracted, _) = op.makes[0].dtype, op.params["dimension_numbers"]
        k = math.prod(op.reads[0].shape[axis] for axis in contracted[0])
        others = op.makes[0].size * rows // max(1, matrix.size)
        needed = op.makes[0].size if is_factor else int(op.work) // rows
        inputs = (
            (f"{dtype}[{rows}]", f"{dtype}[{rows},{others}]")
            if is_factor
            else (f"{dtype}[{rows},{k}]", f"{dtype}[{k},{rows}]")
        )
        pair = (_multiply_diagonal, _scale) if is_factor else (_trace_product, _sum_products)
        yield Match(
            f"multiplies by a diagonal matrix, {matrix.spec}"
            if is_factor
            else f"makes all of a product, {matrix.spec}, and uses its diagonal",
            [
                (
                    f"{count(op.work, 'FLOP')} for a product; {count(needed, 'FLOP')} would do, and {matrix.spec}, "
                    f"{size(matrix.size_bytes)}, in between"
                )
            ],
            OF_FACTOR if is_factor else OF_RESULT,
            op=op,
            instead=Instead("scaling" if is_factor else "the diagonal alone", "this product", *pair, inputs),
        )


def _diagonals(program: TracedProgram) -> Iterator[tuple[TracedOp, Value, int, bool]]:
    """(a product, the matrix, rows of its diagonal, is the matrix a factor of it?)"""
    for op in program.find("dot_general"):
        for side, matrix in enumerate(op.reads):
            axes, identity = diagonal_axes(matrix), _identity_behind(matrix)
            contracted, batched = (pair[side] for pair in op.params["dimension_numbers"])
            # Rows of an identity along which a derivative is taken are no factor that somebody wrote.
            if axes is None or (identity is not None and scope_behind(identity, op).startswith((FORWARD, REVERSE))):
                continue
            if len(contracted) == 1 and contracted[0] in axes and not set(axes) & set(batched):
                yield op, matrix, matrix.shape[axes[0]], True
    for op in program.find("mul", "select_n", "cond", "gather"):
        for value, rows in _diagonal_of(op) if op.makes else ():  # a cond can give nothing, only print or raise
            yield from ((product, product.makes[0], rows, False) for product in _products_behind(value))


def _identity_behind(value: Value) -> TracedOp | None:
    behind = (one.maker for one in value.behind(MOVES | {"mul", "div", "neg", "select_n"}))
    return next((maker for maker in behind if maker is not None and maker.name == "eq"), None)


def _diagonal_of(op: TracedOp) -> Iterator[tuple[Value, int]]:
    """(what it takes the diagonal of, how long that is)"""
    made, readers = op.makes[0], op.makes[0].readers
    if op.name == "cond":  # `jnp.diagonal` has one way on each platform, one of them by a mask
        masks = [one for one in op.reads[1:] if diagonal_axes(one) == (0, 1)]
        others = [one for one in op.reads[1:] if one not in masks]
        if len(masks) == 1 and len(others) == 1 and made.size * masks[0].shape[0] == others[0].size:
            yield others[0], masks[0].shape[0]
    elif op.name == "gather":  # x[..., i, i]
        numbers, n = op.params["dimension_numbers"], len(op.reads[0].shape)
        index = op.reads[1].made_by("concatenate")
        is_square = n > 1 and op.reads[0].shape[-1] == op.reads[0].shape[-2]
        is_of_matrix = sorted(numbers.start_index_map) == [n - 2, n - 1] and op.params["slice_sizes"][-2:] == (1, 1)
        counted = [counted_axis(unwrap_index(one)) for one in index.reads] if index is not None else []
        if is_square and is_of_matrix and len(counted) == 2 and None not in counted:
            yield op.reads[0], op.reads[0].shape[-1]
    elif (axes := diagonal_axes(made)) and [one.name for one in readers] == ["reduce_sum"] and made.uses == 1:
        is_summed = bool(set(axes) & set(readers[0].params["axes"]))
        yield from ((read, made.shape[axes[0]]) for read in op.reads if is_summed)


def _products_behind(value: Value) -> Iterator[TracedOp]:
    """Products that nothing else reads, also behind elementwise operations: `jnp.diag(k - a @ b)`."""
    waiting = [value]
    for one in waiting:
        maker = one.maker if one.uses == 1 and one.size == value.size else None
        if maker is not None and maker.name == "dot_general":
            yield maker
        elif maker is not None and maker.name in ELEMENTWISE | {"transpose"}:
            waiting += maker.reads


def _multiply_diagonal(w: jax.Array, a: jax.Array) -> jax.Array:
    return jnp.diag(w) @ a


def _scale(w: jax.Array, a: jax.Array) -> jax.Array:
    return w[:, None] * a


def _trace_product(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.trace(a @ b)


def _sum_products(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.sum(a * b.T)


# ---- kronecker-identity ----------------------------------------------------------------------------------------------

LEAST_ELEMENTS, LEAST_TIMES = 1 << 16, 4
"""The size of the matrix, and how many times it is larger than necessary."""


@rule(
    "kronecker-identity",
    "are small matrices applied along their axis?",
    "warning",
    traced=True,
    pack=PACK,
    advice=(
        "Give the vector an axis for each factor, and multiply along one: x.reshape(left, k, right), then "
        'jnp.einsum("ij,ljr->lir", a, x).reshape(-1). The large matrix is never made.'
    ),
)
def kronecker_identity(e: Evidence) -> Iterator[Match]:
    """Finds products with `jnp.kron(a, jnp.eye(n))`, which apply the small matrix along one axis."""
    arrays = arrays_of_call(e)
    for op in e.program.find("dot_general"):
        for matrix, other in (op.reads, op.reads[::-1]):
            n = _identity_rows(matrix, arrays) if len(matrix.shape) == 2 and matrix.size >= LEAST_ELEMENTS else 1
            rows = matrix.shape[0]
            if not LEAST_TIMES <= n < rows:
                continue
            small, columns = rows // n, other.size // rows
            given = (jnp.ones((small, small), matrix.dtype), jnp.ones((rows, columns), matrix.dtype))
            yield Match(
                f"multiplies by {matrix.spec}, the Kronecker product of {count(small)} rows with identities",
                [
                    f"the matrix has {size(matrix.size_bytes)}{op.at}",
                    f"along one axis it takes 1 in {count(n)} of these operations",
                ],
                op=op,
                instead=Instead("along one axis", "this product", _by_kronecker, _by_axis, given),
            )


def _identity_rows(value: Value, arrays: Arrays) -> int:
    """The product of the sizes of the identities in a Kronecker product; 1 if it has none, or is no such product."""
    if identity_axes(value, arrays) is not None:
        return value.shape[0]
    op = value.back(out=True).maker
    if op is None or op.name != "mul" or len(op.makes[0].shape) != 4:
        return 1
    factors = {
        view.axes: view.source for view in (read.view(out=True) for read in op.reads) if len(view.source.shape) == 2
    }
    is_kronecker = {axes.index(0) for axes in factors if axes.count(None) == 2} == {0, 1}
    return math.prod(_identity_rows(one, arrays) for one in factors.values()) if is_kronecker else 1


def _by_kronecker(a: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.kron(jnp.eye(x.shape[0] // a.shape[0], dtype=a.dtype), a) @ x


def _by_axis(a: jax.Array, x: jax.Array) -> jax.Array:
    return jnp.einsum("ij,ljc->lic", a, x.reshape(-1, a.shape[0], x.shape[1])).reshape(x.shape)


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
                    "by its entries", "this product", _by_matrix, _by_entries, (dense, kept, rows, places, x)
                ),
            )


def _entries(array: Any) -> int:
    """Entries that are not zero, of a matrix if they are few; 0 otherwise."""
    is_matrix = getattr(array, "ndim", 0) == 2 and array.size >= SPARSE_ELEMENTS
    n = int(np.count_nonzero(np.asarray(array))) if is_matrix and jnp.issubdtype(array.dtype, np.number) else 0
    return n if is_matrix and n <= MOST_SHARE * array.size else 0


def _by_matrix(matrix: Any, values: Any, rows: Any, places: Any, x: Any) -> Any:
    return matrix @ x


def _by_entries(matrix: Any, values: Any, rows: Any, places: Any, x: Any) -> Any:
    return jax.ops.segment_sum(values[:, None] * x[places], rows, matrix.shape[0])


# ---- unused-factors --------------------------------------------------------------------------------------------------

FACTOR_FLOPS = 1 << 22
"""FLOP that nothing uses, with the loop around them. Fewer took 0.3 ms or less on one core."""


@rule("unused-factors", "are factors only made if they are used?", "warning", traced=True, known_on="cpu", pack=PACK)
def unused_factors(e: Evidence) -> Iterator[Match]:
    """Finds factorizations, if only their singular values, eigenvalues or first columns are used."""
    # Not eigh, which JAX has no cheaper form of: `jnp.linalg.eigvalsh` takes as long (jaxlib 0.10.2, CPU).
    for op in e.program.find("svd", "eig", "qr"):
        found = _unused(op, _needed(op))
        if found is None or found[1] * (op.body.trips or 1) < FACTOR_FLOPS:
            continue
        kind, flops, unused = found
        title, advice, now, better = _FACTORS[kind]
        most, matrix = min(op.reads[0].shape[-2:]), op.reads[0]
        specs, read = " and ".join(value.spec for value in unused), "which are never read"
        yield Match(
            title.format(spec=unused[0].spec, n=most),
            [
                (
                    f"{op.name} of {matrix.spec} makes {specs}, {size(sum(value.size_bytes for value in unused))}, "
                    f"{'whose rest is never read' if '{n}' in title else read}: about {count(flops, 'FLOP')} too many"
                )
            ],
            advice,
            op=op,
            instead=Instead(
                "without what is not used",
                "this factorization",
                now,
                better,
                (f"{matrix.dtype}[{matrix.shape[-2]},{matrix.shape[-1]}]",),
            ),
        )


def _needed(op: TracedOp) -> set[Value]:
    """Values of its body that the outputs depend on, or something with effects."""
    found = set(op.body.outputs)
    for one in reversed(op.body.ops):
        if one.equation.effects or found.intersection(one.makes):
            found.update(one.reads)
    return found


def _unused(op: TracedOp, needed: set[Value]) -> tuple[str, float, list[Value]] | None:
    """(what is not used of it, FLOP for that, the factors)"""
    (*batches, m, n), first, rest = op.reads[0].shape, op.makes[0], list(op.makes[1:])
    batch, least, most = math.prod(batches), min(m, n), max(m, n)
    is_alone = first in needed and bool(rest) and not needed.intersection(rest)
    if op.name == "eig":
        return ("eigenvalues", 15.0 * batch * n**3, rest) if is_alone else None
    if op.name == "svd" and is_alone:
        return "values", 8.0 * batch * most * least**2, rest
    # One of the two is square and larger than the matrix has columns or rows: its rest completes a basis.
    large, axis = (first, -1) if op.name == "qr" else (rest[0], -1) if m > n else (rest[-1] if rest else first, -2)
    is_longer = m != n and large.shape[axis] > least and (op.name == "svd" or (m > n and first in needed))
    if not is_longer or not _is_cut(large, axis % len(large.shape), least, needed):
        return None
    return ("reduced" if op.name == "qr" else "thin"), 4.0 * batch * least * most * (most - least), [large]


def _is_cut(value: Value, axis: int, most: int, needed: set[Value]) -> bool:
    """Are no more than the first few read of it along this axis, or nothing?"""
    for op in (op for op in value.readers if needed.intersection(op.makes)):
        made = op.makes[0]
        if op.name == "slice" and op.params["limit_indices"][axis] <= most:
            continue
        moved = op.params["permutation"].index(axis) if op.name == "transpose" else axis
        is_moved = op.name in ("transpose", "neg", "convert_element_type", "copy")
        if not is_moved or not _is_cut(made, moved, most, needed):
            return False
    return not value.is_output


def _svd(a: jax.Array) -> jax.Array:
    return jnp.linalg.svd(a, full_matrices=False)[1]


def _singular_values(a: jax.Array) -> jax.Array:
    return jnp.linalg.svd(a, compute_uv=False)


def _full_svd(a: jax.Array) -> tuple[jax.Array, ...]:
    u, s, vh = jnp.linalg.svd(a)
    return u[:, : s.shape[0]], s, vh[: s.shape[0]]


def _thin_svd(a: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(jnp.linalg.svd(a, full_matrices=False))


def _eig(a: jax.Array) -> jax.Array:
    return jnp.linalg.eig(a)[0]


def _eigenvalues(a: jax.Array) -> jax.Array:
    return jnp.linalg.eigvals(a)


def _complete_qr(a: jax.Array) -> jax.Array:
    return jnp.linalg.qr(a, mode="complete")[0][:, : a.shape[1]]


def _reduced_qr(a: jax.Array) -> jax.Array:
    return jnp.linalg.qr(a)[0]


_FACTORS = {
    "values": (
        "makes singular vectors and uses the singular values alone",
        (
            "Ask for the values alone: jnp.linalg.svd(a, compute_uv=False), or jnp.linalg.svdvals(a). XLA leaves "
            "nothing out of a factorization."
        ),
        _svd,
        _singular_values,
    ),
    "thin": (
        "makes {spec} of singular vectors and uses {n} of them at most",
        "Give jnp.linalg.svd full_matrices=False: its default completes the vectors to a basis of the whole space.",
        _full_svd,
        _thin_svd,
    ),
    "eigenvalues": (
        "makes eigenvectors and uses the eigenvalues alone",
        "Ask for the eigenvalues alone: jnp.linalg.eigvals(a).",
        _eig,
        _eigenvalues,
    ),
    "reduced": (
        "makes {spec} of a basis and uses {n} columns at most",
        'Use jnp.linalg.qr(a), whose default is mode="reduced": "complete" makes a basis of the whole space.',
        _complete_qr,
        _reduced_qr,
    ),
}
