"""Finds products of three matrices that are multiplied in the dearer of their two orders: `(a @ b) @ x`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import jax

from benchax.auditing.dataflow import GRADIENT, Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Tried, gain_of_part, rule, try_variant
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, closed_jaxpr, first_of_each_line
from benchax.case import make_case
from benchax.results.audit import Finding
from benchax.units import count

PRODUCT = "dot_general"
LEAST_RATIO, LEAST_SAVED = 2.0, 1 << 24
"""FLOP in this order over those in the other, and how many more they are."""


@dataclass(frozen=True)
class _Chain:
    """A product of a product: a of rows × inner, b of inner × shared, and a third of shared × others."""

    step: TracedEquation
    dtype: str
    is_left: bool
    """(a b) c, where a (b c) is cheaper; else c (b a), where (c b) a is."""
    batch: int
    rows: int
    inner: int
    shared: int
    others: int

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.rows * self.shared * (self.inner + self.others)

    @property
    def other_flops(self) -> int:
        return 2 * self.batch * self.inner * self.others * (self.rows + self.shared)


@rule("matmul-order", "are chains of products multiplied in the cheaper order?", "warning", needs_trace_only=True)
def matmul_order(e: Evidence) -> Iterable[Finding]:
    chains = (chain for body in bodies(closed_jaxpr(e)) for chain in _chains(body))
    dear = (one for one in chains if one.flops >= max(LEAST_RATIO * one.other_flops, one.other_flops + LEAST_SAVED))
    yield from (_finding(e, one) for one in first_of_each_line(dear))


def _chains(body: Body) -> Iterator[_Chain]:
    for step in body.program.steps:
        # What a derivative has made is of the products that somebody wrote, which have findings of their own.
        if step.name == PRODUCT and GRADIENT not in step.scope:
            for side in (0, 1):
                inner = body.maker(body.through(step.reads[side], ("convert_element_type",)))
                # A product that something else needs too has to be made anyway.
                if inner is not None and inner.name == PRODUCT and body.uses[id(inner.makes[0])] == 1:
                    yield from _chain(step, side, inner)


def _chain(step: TracedEquation, side: int, inner: TracedEquation) -> Iterator[_Chain]:
    """Nothing where the product is not summed over all that one of its factors gave to it."""
    contracted, batched = (axes[side] for axes in step.equation.params["dimension_numbers"])
    inner_contracted, inner_batched = inner.equation.params["dimension_numbers"]
    shape, other = inner.makes[0].shape, step.reads[1 - side]
    n_batch = len(inner_batched[0])
    left = n_batch + len(inner.reads[0].shape) - n_batch - len(inner_contracted[0])
    of_left, of_right = range(n_batch, left), range(left, len(shape))
    if sorted(batched) != list(range(n_batch)) or sorted(contracted) not in (list(of_left), list(of_right)):
        return
    is_left = sorted(contracted) == list(of_right)
    rows, shared = (of_left, of_right) if is_left else (of_right, of_left)
    size = math.prod(other.shape)
    batch, n, m = (math.prod(shape[i] for i in axes) for axes in (range(n_batch), rows, shared))
    k = math.prod(inner.reads[0].shape[i] for i in inner_contracted[0])
    yield _Chain(step, str(step.makes[0].dtype), is_left, batch, n, k, m, size // max(1, batch * m))


def _finding(e: Evidence, chain: _Chain) -> Finding:
    tried = _try_other(e, chain)
    seen = [
        f"{count(chain.flops, 'FLOP')} in this order, {count(chain.other_flops, 'FLOP')} in the other",
        tried.sentence,
    ]
    return matmul_order.finding(
        f"multiplies three matrices in an order of {chain.flops / chain.other_flops:.3g} times the work",
        seen,
        "Multiply what gives the smaller matrix first: "
        + ("a @ (b @ x) in place of a @ b @ x" if chain.is_left else "(x @ a) @ b in place of x @ (a @ b)")
        + ", or jnp.linalg.multi_dot([...]), which chooses. It rounds differently.",
        where=where_of(chain.step.line) or e.def_where,
        gain=gain_of_part(e, tried.gain, "this product"),
    )


def _try_other(e: Evidence, chain: _Chain) -> Tried:
    """Of one of a batch; a product from the other side is its transpose, and as dear."""
    n, k, m, p = chain.rows, chain.inner, chain.shared, chain.others
    inputs = tuple(f"{chain.dtype}[{a},{b}]" for a, b in ((n, k), (k, m), (m, p)))
    written, other = (make_case(fn, inputs, name=fn.__name__.strip("_")) for fn in (_first_two, _last_two))
    return try_variant(e, "the other order", other, written)


def _first_two(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    return (a @ b) @ c


def _last_two(a: jax.Array, b: jax.Array, c: jax.Array) -> jax.Array:
    return a @ (b @ c)
