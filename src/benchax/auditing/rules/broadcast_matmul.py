"""Finds sums over the broadcast product, or the squared differences, of two arrays: what a matrix product does."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from benchax.auditing.dataflow import GRADIENT, Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Tried, gain_of_part, rule, try_variant
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr
from benchax.case import make_case
from benchax.results.audit import Finding
from benchax.units import count, size

LARGE = 1 << 20
"""Elements of the broadcast array."""
UNCHANGED = ("convert_element_type", "abs")
"""What squares of differences are the same without."""
FEW_SUMMED, FEW_ROWS = 8, 8
"""Of three coordinates the differences are more exact than a product, and nearly as quick."""


@dataclass(frozen=True)
class _Pairing:
    """Two arrays of which every row of one meets every row of the other."""

    is_difference: bool
    step: TracedEquation
    rows: int
    columns: int
    summed: int
    dtype: str

    @property
    def elements(self) -> int:
        return self.rows * self.columns * self.summed


@rule("broadcast-matmul", "does it broadcast what a matrix product would sum?", "warning", needs_trace_only=True)
def broadcast_matmul(e: Evidence) -> Iterable[Finding]:
    told: set[str] = set()
    for body in bodies(closed_jaxpr(e)):
        for step in body.program.steps:
            if step.name == "reduce_sum" and GRADIENT not in step.scope and step.line not in told:
                found = _pairing(body, step)
                if found is not None:
                    told.add(step.line)
                    yield _finding(e, found)


def _pairing(body: Body, step: TracedEquation) -> _Pairing | None:
    value = body.through(step.reads[0], ("convert_element_type", "neg"))
    operands = _operands(body, value)
    if operands is None:
        return None
    is_difference, one, other, weight = operands
    summed = frozenset(step.equation.params["axes"])
    here, there = body.varying_axes(one), body.varying_axes(other)
    rows, columns = here - there, there - here
    if weight is not None and rows & (along := body.varying_axes(weight)) and columns & along:
        return None
    if not summed or not rows or not columns or not summed <= here & there:
        return None
    n, m, d = (math.prod(value.shape[i] for i in axes) for axes in (rows, columns, summed))
    # What both have beside the axis that is summed is a batch, of which there may be many.
    is_large = math.prod(value.shape) >= LARGE and d >= FEW_SUMMED and min(n, m) >= FEW_ROWS
    return _Pairing(is_difference, step, n, m, d, str(value.dtype)) if is_large else None


def _operands(body: Body, value: TracedValue) -> tuple[bool, TracedValue, TracedValue, TracedValue | None] | None:
    """(is it a squared difference?, its two operands, what that is weighted with); None where it is neither that nor a
    product."""
    difference = _difference(body, value)
    if difference is not None:
        return True, *difference
    step = body.maker(value)
    if step is None or step.name not in ("mul", "div"):
        return None
    sides = (step.reads, step.reads[::-1]) if step.name == "mul" else (step.reads,)
    for squared, weight in sides:
        # Of two weights one is enough to tell whether both rows and columns have one of their own.
        if (difference := _difference(body, squared)) is not None:
            return True, *difference[:2], weight
    is_product = step.name == "mul" and step.reads[0] is not step.reads[1]
    return (False, step.reads[0], step.reads[1], None) if is_product else None


def _difference(body: Body, value: TracedValue) -> tuple[TracedValue, TracedValue, TracedValue | None] | None:
    """The operands of a squared difference, and what it was scaled with before: the width of a kernel."""
    step = body.maker(value)
    if step is None:
        return None
    if step.name == "mul" and step.reads[0] is not step.reads[1]:
        return None
    is_square = step.name in ("square", "mul") or (step.name == "integer_pow" and step.equation.params.get("y") == 2)
    inner = body.maker(body.through(step.reads[0], UNCHANGED)) if is_square else None
    scale = None
    if inner is not None and inner.name in ("mul", "div"):
        scale, inner = inner.reads[1], body.maker(body.through(inner.reads[0], UNCHANGED))
    if inner is None or inner.name not in ("sub", "add"):
        return None
    return inner.reads[0], inner.reads[1], scale


def _finding(e: Evidence, found: _Pairing) -> Finding:
    tried = _try_product(e, found)
    what = "squared differences" if found.is_difference else "products"
    seen = [
        (
            f"{found.rows} × {found.columns} {what} of {found.summed} elements each, summed: {count(found.elements)} "
            f"elements, {size(found.elements * jnp.dtype(found.dtype).itemsize)} where they are kept"
        ),
        tried.sentence,
    ]
    return broadcast_matmul.finding(
        f"sums {what} of all pairs, which a matrix product does",
        seen,
        _OF_DIFFERENCES if found.is_difference else _OF_PRODUCTS,
        where=where_of(found.step.line) or e.def_where,
        gain=gain_of_part(e, tried.gain, "this sum"),
    )


_OF_PRODUCTS = "Write it as a matrix product: a @ b.T, or jnp.einsum('nd,md->nm', a, b)."
_OF_DIFFERENCES = (
    "|a - b|² is |a|² - 2 a·b + |b|²: (a**2).sum(-1)[:, None] - 2 * a @ b.T + (b**2).sum(-1)[None]. It rounds "
    "differently: small distances of large vectors lose digits, and may come out below zero (jnp.maximum(d, 0)). With "
    "a weight w of each coordinate of b it is (a**2) @ w.T - 2 * a @ (b * w).T + (b**2 * w).sum(-1)[None]."
)


def _try_product(e: Evidence, found: _Pairing) -> Tried:
    inputs = (f"{found.dtype}[{found.rows},{found.summed}]", f"{found.dtype}[{found.columns},{found.summed}]")
    pair = (_subtract_all, _distances) if found.is_difference else (_multiply_all, _product)
    before, after = (make_case(fn, inputs, name=fn.__name__.strip("_")) for fn in pair)
    return try_variant(e, "a matrix product", after, before)


def _subtract_all(a: jax.Array, b: jax.Array) -> jax.Array:
    return ((a[:, None] - b[None]) ** 2).sum(-1)


def _distances(a: jax.Array, b: jax.Array) -> jax.Array:
    return (a**2).sum(-1)[:, None] - 2 * a @ b.T + (b**2).sum(-1)[None]


def _multiply_all(a: jax.Array, b: jax.Array) -> jax.Array:
    return (a[:, None] * b[None]).sum(-1)


def _product(a: jax.Array, b: jax.Array) -> jax.Array:
    return a @ b.T
