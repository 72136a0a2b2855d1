"""Finds products of many factors that leave the range of their dtype: likelihoods that become 0."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from benchax.auditing.dataflow import GRADIENT, Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.kept_values import compute_values
from benchax.auditing.rule import NotApplicable, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.tolerance_loops import constants_as_inputs
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr, first_of_each_line
from benchax.auditing.work import elements
from benchax.results.audit import Finding

LEAST_FACTORS = 16
PRODUCTS, HALVING = ("reduce_prod", "cumprod"), ("slice", "pad")
PASSES = ("reshape", "broadcast_in_dim", "squeeze", "expand_dims", "convert_element_type", "transpose", "neg", "max")
NEXT_TO_NOTHING = 1e-6
"""What keeps a logarithm finite, as in jnp.log(p + 1e-30), and not what a product of 0 is negligible beside."""
ADVICE = (
    "Add logarithms in place of multiplying: jnp.sum(jnp.log(p)), or jnp.sum(jax.nn.log_sigmoid(x)) and its like, "
    "which take the logarithm where p is made; of a determinant jnp.linalg.slogdet."
)


class _LongProduct(NamedTuple):
    body: Body
    step: TracedEquation
    """That gives the product."""
    factors: TracedValue
    is_running: bool
    """A product of each beginning: `cumprod`, `associative_scan`."""


@rule("underflowing-product", "do long products stay in range?", "warning", needs_trace_only=True)
def underflowing_product(e: Evidence) -> Iterable[Finding]:
    closed = constants_as_inputs(closed_jaxpr(e))
    found = list(first_of_each_line(one for body in bodies(closed) for one in _products(body)))
    if not found:
        raise NotApplicable(f"no product of {LEAST_FACTORS} factors or more is in it")
    for one in found:
        factors, made = compute_values(e, one.body, [one.factors, one.step.makes[0]])
        if np.all(np.isfinite(factors)) and np.all(factors != 0):
            out = (made == 0) & _is_0_too_small(one) | ~np.isfinite(made)
            if np.any(out):
                yield _finding(e, one, np.abs(factors), np.atleast_1d(made)[np.atleast_1d(out)], out.size)


def _products(body: Body) -> Iterator[_LongProduct]:
    """The last step of each first: of a tree of products that is the one of all factors."""
    for step in reversed(body.program.steps):
        if not step.makes or not step.makes[0].is_of(jnp.floating) or GRADIENT in step.scope:
            continue
        is_tree = step.name not in PRODUCTS
        factors = _leaves(body, step) if is_tree else step.reads[0]
        if factors is not None and _n_factors(step, factors) >= LEAST_FACTORS:
            is_running = _takes_every_second(body, step) if is_tree else step.name == "cumprod"
            yield _LongProduct(body, step, factors, is_running)


def _takes_every_second(body: Body, step: TracedEquation) -> bool:
    """As `associative_scan` does; `jnp.prod`, where it is differentiated, halves in the middle."""
    halves = (body.maker(value) for value in step.reads)
    return any(half is not None and half.name == "slice" and half.equation.params["strides"] for half in halves)


def _is_0_too_small(one: _LongProduct) -> bool:
    """Is a product of 0 another result than that of the true, small product? Of 1 - p it is the same. A running product
    is the weight of what came before, and one of 0 is right; only its logarithm is not."""
    uses = _uses_of_0(one.body, one.step.makes[0])
    return "logarithm" in uses if one.is_running else uses != {"term"}


def _uses_of_0(body: Body, product: TracedValue) -> set[str]:
    """What the program does with a product that is 0: "logarithm" (or a divisor), "term" (beside a number), "other"."""
    found, waiting = set[str](), [product]
    while waiting:
        value = waiting.pop()
        if body.is_output(value):
            found.add("other")
        for reader in body.readers(value):
            if reader.name == "log" or (reader.name == "div" and reader.reads[1] is value):
                found.add("logarithm")
            elif reader.name in PASSES or _beside(reader, value) <= NEXT_TO_NOTHING:
                waiting += reader.makes
            elif GRADIENT not in reader.scope:
                found.add("term" if _beside(reader, value) < np.inf else "other")
    return found


def _beside(reader: TracedEquation, value: TracedValue) -> float:
    """The size of the number that is added to it; infinite if none is."""
    others = [read.literal for read in reader.reads if read is not value]
    is_added = reader.name in ("add", "sub") and len(others) == 1 and np.ndim(others[0]) == 0
    return abs(float(others[0])) if is_added and others[0] is not None else np.inf


def _leaves(body: Body, step: TracedEquation) -> TracedValue | None:
    """What a tree of products is made of, which `jnp.prod` is where it is differentiated: halves that are multiplied
    again and again. None of any other step."""
    found, levels = None, 0
    while step.name == "mul":
        halves = [body.through(value, HALVING) for value in step.reads]
        if halves[0] is not halves[1] or halves[0] is step.reads[0]:
            break
        found, levels, maker = halves[0], levels + 1, body.maker(halves[0])
        if maker is None:
            break
        step = maker
    return found if 2**levels >= LEAST_FACTORS else None


def _n_factors(step: TracedEquation, factors: TracedValue) -> int:
    if step.name == "cumprod":
        return factors.shape[step.equation.params["axis"]]
    return elements(factors) // max(1, elements(step.makes[0]))


def _finding(e: Evidence, one: _LongProduct, sizes: np.ndarray, bad: np.ndarray, n_results: int) -> Finding:
    """sizes: of the factors; bad: the results that are out of range."""
    dtype, middle = one.step.makes[0].dtype, np.exp(np.mean(np.log(sizes.astype(np.float64))))
    info = jnp.finfo(dtype)
    return underflowing_product.finding(
        f"a product of {_n_factors(one.step, one.factors)} factors is {float(bad[0]):g}, and none of them is",
        [
            f"with the arguments of one call {bad.size} of {n_results} results are 0 or not finite",
            f"the factors have sizes from {sizes.min():.3g} to {sizes.max():.3g}, {middle:.3g} in the geometric mean",
            f"numbers of {dtype} have sizes from {float(info.tiny):.3g} to {float(info.max):.3g}",
        ],
        ADVICE,
        where=where_of(one.step.line) or e.def_where,
    )
