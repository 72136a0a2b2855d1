"""Matrix products that do more work than their result needs."""

from __future__ import annotations

import math
from collections.abc import Iterator

import jax
import jax.numpy as jnp

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable
from benchax.auditing.traced import Instead, Match, arrays_of_call, traced_rule
from benchax.program.index import CONVERTS, TracedOp, TracedProgram, Value
from benchax.program.patterns import is_one_hot
from benchax.units import count, size

ONE_HOT_BYTES = 1 << 20
"""A smaller product is quick."""


@traced_rule("one-hot-matmul", "does it multiply one-hot arrays to look up rows?", "warning")
def one_hot_matmul(program: TracedProgram, e: Evidence) -> Iterator[Match]:
    """Finds products of a one-hot array and a table, which only look up rows of the table."""
    if e.platform == "tpu":
        raise NotApplicable("TPUs multiply by one-hot arrays faster than they index (JAX issue 10891)")
    arrays = arrays_of_call(e)
    for op in program.find("dot_general"):
        (contracted, batched) = op.params["dimension_numbers"]
        for side in () if any(batched[0]) or len(contracted[0]) != 1 else (0, 1):
            hot, table, axis = op.reads[side], op.reads[1 - side], contracted[side][0]
            rows = hot.shape[axis]
            if hot.size_bytes < ONE_HOT_BYTES or rows < 64 or not is_one_hot(hot, axis, arrays):
                continue
            inputs = (f"{hot.dtype}[{rows},{table.size // rows}]", jnp.arange(hot.size // rows) * 7 % rows)
            flops = count(2 * op.makes[0].size * rows, "FLOP")
            yield Match(
                op,
                f"looks up rows of {table.spec} by a product with a one-hot array",
                [f"{hot.spec} of zeros and ones, {size(hot.size_bytes)}, times {table.spec}: {flops}"],
                "Index the table: table[index], or jnp.take(table, index, axis=0) (flax.linen.Embed, "
                "equinox.nn.Embedding). Its gradient adds into the rows that were used. Instead of (one_hot(i) - "
                "one_hot(j)) @ table write table[i] - table[j].",
                Instead("a lookup", "this product", _multiply, _look_up, inputs),
            )
            break


def _multiply(table: jax.Array, index: jax.Array) -> jax.Array:
    return jax.nn.one_hot(index, table.shape[0], dtype=table.dtype) @ table


def _look_up(table: jax.Array, index: jax.Array) -> jax.Array:
    return jnp.take(table, index, axis=0)


BROADCAST_ELEMENTS = 1 << 20
FEW = 8
"""Rows, columns, and elements in a sum. With three coordinates, differences are more exact and nearly as quick."""


@traced_rule("broadcast-matmul", "does it broadcast what a matrix product would sum?", "warning")
def broadcast_matmul(program: TracedProgram, e: Evidence) -> Iterator[Match]:
    """Finds sums over the broadcast product, or the squared differences, of two arrays."""
    for op in program.find("reduce_sum", "dot_general"):
        value, summed, is_squared = _terms(op)
        if value is None or value.size < BROADCAST_ELEMENTS:
            continue
        is_difference, one, other, weights = _pairing(value, is_squared)
        if one is None or other is None:
            continue
        rows, columns = one.varying - other.varying, other.varying - one.varying
        is_weighted = any(weight.varying & rows and weight.varying & columns for weight in weights)
        n, m, d = (math.prod(value.shape[i] for i in axes) for axes in (rows, columns, summed))
        if is_weighted or not summed <= one.varying & other.varying or min(n, m, d) < FEW:
            continue
        what = "squared differences" if is_difference else "products"
        pair = (_subtract_all, _distances) if is_difference else (_multiply_all, _product)
        inputs = (f"{value.dtype}[{n},{d}]", f"{value.dtype}[{m},{d}]")
        elements = n * m * d
        yield Match(
            op,
            f"sums {what} of all pairs, which a matrix product does",
            [
                (
                    f"{n} × {m} {what} of {d} elements each, summed: {count(elements)} elements, "
                    f"{size(elements * value.dtype.itemsize)} if they are kept"
                )
            ],
            _OF_DIFFERENCES if is_difference else _OF_PRODUCTS,
            Instead("a matrix product", "this sum", *pair, inputs),
        )


_OF_PRODUCTS = "Write it as a matrix product: a @ b.T, or jnp.einsum('nd,md->nm', a, b)."
_OF_DIFFERENCES = (
    "|a - b|² is |a|² - 2 a·b + |b|²: (a**2).sum(-1)[:, None] - 2 * a @ b.T + (b**2).sum(-1)[None]. It rounds "
    "differently: small distances of large vectors lose digits, and can come out below zero (jnp.maximum(d, 0)). With "
    "a weight w of each coordinate of b it is (a**2) @ w.T - 2 * a @ (b * w).T + (b**2 * w).sum(-1)[None]."
)


def _terms(op: TracedOp) -> tuple[Value | None, frozenset[int], bool]:
    """(what is added up, along which axes, are its squares added up?)"""
    if op.name == "reduce_sum":
        return op.reads[0].back({*CONVERTS, "neg"}), frozenset(op.params["axes"]), False
    (left, right), (batched, others) = op.params["dimension_numbers"]
    is_square = op.reads[0].back() is op.reads[1].back() and left == right and batched == others
    return (op.reads[0], frozenset(left), True) if is_square else (None, frozenset(), False)


def _pairing(value: Value, is_squared: bool) -> tuple[bool, Value | None, Value | None, list[Value]]:
    """(is it a squared difference?, its two operands, weights); no operands if it is neither that nor a product."""
    weights: list[Value] = []
    root = value if is_squared else _square_root(value, weights)
    if root is None:
        maker = value.maker
        is_product = maker is not None and maker.name == "mul" and maker.reads[0] is not maker.reads[1]
        return (False, maker.reads[0], maker.reads[1], []) if maker and is_product else (False, None, None, [])
    inner = root.back({*CONVERTS, "abs"}).maker
    if inner is not None and inner.name in ("mul", "div"):  # the width of a kernel
        weights.append(inner.reads[1])
        inner = inner.reads[0].back({*CONVERTS, "abs"}).maker
    is_difference = inner is not None and inner.name in ("sub", "add")
    return (True, inner.reads[0], inner.reads[1], weights) if inner and is_difference else (False, None, None, [])


def _square_root(value: Value, weights: list[Value]) -> Value | None:
    """The value whose square it is, perhaps times weights, which are noted; None for others."""
    maker = value.maker
    if maker is None or maker.name not in ("mul", "div", "square", "integer_pow", "pow"):
        return None
    is_square = (
        maker.name == "square" or maker.params.get("y") == 2 or (maker.name == "pow" and maker.reads[1].number == 2)
    )
    if is_square or (maker.name == "mul" and maker.reads[0] is maker.reads[1]):
        return maker.reads[0]
    for squared, weight in (maker.reads, maker.reads[::-1]) if maker.name == "mul" else (maker.reads,):
        if (found := _square_root(squared, weights)) is not None:
            weights.append(weight)
            return found
    return None


def _subtract_all(a: jax.Array, b: jax.Array) -> jax.Array:
    return ((a[:, None] - b[None]) ** 2).sum(-1)


def _distances(a: jax.Array, b: jax.Array) -> jax.Array:
    return (a**2).sum(-1)[:, None] - 2 * a @ b.T + (b**2).sum(-1)[None]


def _multiply_all(a: jax.Array, b: jax.Array) -> jax.Array:
    return (a[:, None] * b[None]).sum(-1)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return a @ b.T


LEAST_RATIO, LEAST_SAVED = 2.0, 1 << 24
"""FLOP in this order over FLOP in the other, and how many more they are: 2^24 take 0.2 ms at 80 GFLOP/s."""


@traced_rule("matmul-order", "are chains of products multiplied in the cheaper order?", "warning")
def matmul_order(program: TracedProgram, e: Evidence) -> Iterator[Match]:
    """Finds products of three matrices that are multiplied in the more expensive of their two orders."""
    for op in program.find("dot_general"):
        for side in (0, 1):
            view = op.reads[side].view(scaled=True)
            inner = view.source.maker
            # A product that something else needs too has to be made anyway.
            if inner is None or inner.name != "dot_general" or any(value.uses != 1 for value in view.way):
                continue
            contracted, batched = (view.sources(axes[side]) for axes in op.params["dimension_numbers"])
            (inner_contracted, _), (inner_batched, _) = inner.params["dimension_numbers"]
            shape, n_batch = view.source.shape, len(inner_batched)
            split = len(inner.reads[0].shape) - len(inner_contracted)
            left, right = list(range(n_batch, split)), list(range(split, len(shape)))
            if batched != list(range(n_batch)) or contracted not in (left, right):
                continue
            rows, shared = (left, right) if contracted == right else (right, left)
            batch, n, m = (math.prod(shape[i] for i in axes) for axes in (range(n_batch), rows, shared))
            k, p = (
                math.prod(inner.reads[0].shape[i] for i in inner_contracted),
                op.reads[1 - side].size // (batch * m or 1),
            )
            flops, other = 2 * batch * n * m * (k + p), 2 * batch * k * p * (n + m)
            if flops < max(LEAST_RATIO * other, other + LEAST_SAVED):
                continue
            inputs = tuple(f"{op.makes[0].dtype}[{i},{j}]" for i, j in ((n, k), (k, m), (m, p)))
            is_left = (contracted == right) == (side == 0)
            order = "a @ (b @ x) instead of a @ b @ x" if is_left else "(x @ a) @ b instead of x @ (a @ b)"
            yield Match(
                op,
                f"multiplies three matrices in an order of {flops / other:.3g} times the work",
                [f"{count(flops, 'FLOP')} in this order, {count(other, 'FLOP')} in the other"],
                f"Multiply what gives the smaller matrix first: {order}, or jnp.linalg.multi_dot([...]), which "
                "chooses. It rounds differently.",
                Instead("the other order", "this product", _first_two, _last_two, inputs),
            )


def _first_two(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    return (a @ b) @ c


def _last_two(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    return a @ (b @ c)
