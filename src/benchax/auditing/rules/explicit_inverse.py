"""Finds inverses that are made only to be multiplied with a few columns, which a solve needs no inverse for."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax.scipy.linalg import cho_solve, solve_triangular

from benchax.auditing.dataflow import GRADIENT, Body, bodies
from benchax.auditing.diagonals import is_identity
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Tried, gain_of_part, rule, try_variant
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr, first_of_each_line
from benchax.auditing.work import count_operations, elements, operations
from benchax.case import make_case
from benchax.results.audit import Finding
from benchax.units import count

LEAST_ROWS, FEW = 96, 4
"""Of the matrix, and one column in so many of its rows at most. With both, on one core and in float32, an inverse and
its product take 1.4 times as long as a solve of 100 rows, and 2 to 2.8 times of 800; with 64 rows only 1.2 times as
long (jaxlib 0.10.2, CPU)."""
LEAST_SAVED, LEAST_SHARE = 1 << 24, 0.05
"""FLOP, about 0.2 ms on that core; and of all that the function does, for a warning."""
MOVES = ("convert_element_type", "copy", "transpose", "reshape", "squeeze", "broadcast_in_dim", "stop_gradient")
FACTORS = ("lu", "cholesky")


@dataclass(frozen=True)
class _Inverse:
    """A solve of an identity, and the products that read it."""

    step: TracedEquation
    """The last of its solves."""
    products: tuple[TracedEquation, ...]
    factor: TracedEquation | None
    """None: the matrix is triangular as it is, or its factor is given."""
    solves: int
    """Triangular ones."""
    batch: int
    rows: int
    columns: int
    trips: int
    """Iterations of the loop that it is in."""

    @property
    def saved(self) -> float:
        """FLOP, by a solve."""
        return (self.flops - self.solve_flops) * self.trips

    @property
    def _by_column(self) -> int:
        return self.batch * self.solves * self.rows**2

    @property
    def flops(self) -> float:
        return self._factor_flops + self._by_column * self.rows + sum(operations(one) for one in self.products)

    @property
    def solve_flops(self) -> float:
        return self._factor_flops + self._by_column * self.columns

    @property
    def _factor_flops(self) -> float:
        return operations(self.factor) if self.factor else 0.0


@rule("explicit-inverse", "are systems solved without an inverse?", "warning", needs_trace_only=True)
def explicit_inverse(e: Evidence) -> Iterable[Finding]:
    every = list(bodies(closed_jaxpr(e)))
    found = (one for body in every for one in _inverses(body))
    large = (one for one in found if one.rows >= max(LEAST_ROWS, FEW * one.columns) and one.saved >= LEAST_SAVED)
    for one in first_of_each_line(large):
        yield _finding(e, one, one.saved / max(1.0, one.saved, count_operations(every[0].program.steps)))


def _inverses(body: Body) -> Iterator[_Inverse]:
    for step in body.program.steps:
        solves = _solves_of_identity(body, step)
        if not solves or GRADIENT in step.scope:
            continue
        products = _products_of(body, step.makes[0])
        columns = [_columns(body, one, step.makes[0]) for one in products or ()]
        known = [n for n in columns if n is not None]
        if products and len(known) == len(products):
            *batch, rows, _ = step.makes[0].shape
            factor = _factor(body, step)
            yield _Inverse(step, products, factor, solves, math.prod(batch), rows, sum(known), body.trips or 1)


def _solves_of_identity(body: Body, step: TracedEquation) -> int:
    """How many triangular solves have made an inverse of an identity; 0: this is none."""
    if step.name not in ("triangular_solve", "custom_linear_solve"):
        return 0
    shape = step.makes[0].shape
    # Of an iterative solver, which has no factor, the work is not known.
    if len(shape) < 2 or shape[-1] != shape[-2] or (step.name == "custom_linear_solve" and not _factor(body, step)):
        return 0
    made = body.maker(body.through(step.reads[-1], MOVES))
    if made is None:
        return 0
    if is_identity(body, made):
        return 2 if step.name == "custom_linear_solve" else 1
    before = _solves_of_identity(body, made) if made.name == "triangular_solve" else 0
    return before + 1 if before and body.uses[id(made.makes[0])] == 1 else 0


def _factor(body: Body, step: TracedEquation) -> TracedEquation | None:
    """The factorisation that a solve reads, perhaps with its other triangle masked."""
    waiting, seen = list(step.reads[:-1]), set[int]()
    while waiting:
        value = waiting.pop()
        made = body.maker(value)
        if made is None or id(value) in seen:
            continue
        seen.add(id(value))
        if made.name in FACTORS:
            return made
        if made.name in (*MOVES, "select_n", "mul"):
            waiting += made.reads
    return None


def _products_of(body: Body, inverse: TracedValue) -> tuple[TracedEquation, ...] | None:
    """All that reads it; None where something else than a product does. What a derivative reads it for is a
    derivative of the inverse, which a solve has none of."""
    found: list[TracedEquation] = []
    waiting = [inverse]
    while waiting:
        value = waiting.pop()
        if body.is_output(value):
            return None
        for reader in body.readers(value):
            if GRADIENT in reader.scope:
                continue
            if reader.name in MOVES and elements(reader.makes[0]) == elements(inverse):
                waiting.append(reader.makes[0])
            elif reader.name == "dot_general":
                found.append(reader)
            # Where another solve reads it, it is the other half of one inverse, which is looked at there.
            else:
                return None
    return tuple(found)


def _columns(body: Body, product: TracedEquation, inverse: TracedValue) -> int | None:
    """How many columns of each matrix of a batch it is multiplied with; None where both its axes are summed over, or
    neither, or it is squared."""
    sides = [side for side in (0, 1) if body.through(product.reads[side], MOVES) is inverse]
    if len(sides) != 1:
        return None
    contracted, _ = (axes[sides[0]] for axes in product.equation.params["dimension_numbers"])
    matrix, rows = product.reads[sides[0]], inverse.shape[-1]
    if len(contracted) != 1 or matrix.shape[contracted[0]] != rows:
        return None
    return elements(product.makes[0]) // max(1, elements(inverse) // rows)


def _finding(e: Evidence, found: _Inverse, share: float) -> Finding:
    tried = _try_solve(e, found)
    matrix = found.step.makes[0]
    seen = [
        (
            f"{count(found.flops, 'FLOP')} for an inverse of {found.rows} columns of which {found.columns} would do: "
            f"{count(found.solve_flops, 'FLOP')}"
        ),
        *(f"multiplied{one.at}" for one in found.products if one.line != found.step.line),
        tried.sentence,
    ]
    return explicit_inverse.finding(
        f"inverts a matrix, {matrix.spec}, to multiply with {_columns_text(found.columns)}",
        seen,
        _ADVICE[found.factor.name if found.factor else ""]
        + " A solve also loses fewer digits where the matrix is nearly singular.",
        where=where_of(found.step.line) or e.def_where,
        gain=gain_of_part(e, tried.gain, "this solve"),
        severity=None if share >= LEAST_SHARE else "info",
    )


def _columns_text(n: int) -> str:
    return "one column" if n == 1 else f"{count(n)} columns"


_ADVICE = {
    "lu": "Solve instead: jnp.linalg.solve(a, b) in place of jnp.linalg.inv(a) @ b, jnp.linalg.solve(a.T, b.T).T in "
    "place of b @ jnp.linalg.inv(a); of a positive definite matrix jax.scipy.linalg.solve(a, b, assume_a='pos').",
    "cholesky": "Solve for the columns themselves: jax.scipy.linalg.cho_solve(factor, b), or "
    "jax.scipy.linalg.solve(a, b, assume_a='pos'), in place of the inverse times b.",
    "": "Solve for the columns themselves: jax.scipy.linalg.solve_triangular(l, b, lower=True) in place of the inverse "
    "of l times b.",
}


def _try_solve(e: Evidence, found: _Inverse) -> Tried:
    """Of one of a batch, and of a factor that is given, where the factor is not that of a general matrix."""
    n, dtype = found.rows, found.step.makes[0].dtype
    inputs = (f"{dtype}[{n},{n}]", f"{dtype}[{n},{found.columns}]")
    name = found.factor.name if found.factor and found.solves > 1 else "cholesky" if found.solves > 1 else ""
    before, after = (make_case(fn, inputs, name=fn.__name__.strip("_")) for fn in _PAIRS[name])
    return try_variant(e, "solved", after, before)


def _well(a: jax.Array) -> jax.Array:
    """A matrix far from singular, of one of random numbers."""
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


_PAIRS = {
    "lu": (_invert, _solve),
    "cholesky": (_invert_factored, _solve_factored),
    "": (_invert_triangular, _solve_triangular),
}
