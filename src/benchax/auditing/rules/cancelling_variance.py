"""Finds variances as the mean of squares less the square of the mean, of which rounding leaves nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from benchax.auditing.dataflow import Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.kept_values import compute_values
from benchax.auditing.rule import NotApplicable, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.tolerance_loops import constants_as_inputs
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr, first_of_each_line
from benchax.program.jaxpr import is_users_own, nested_in
from benchax.results.audit import Finding
from benchax.units import percent

ADVICE = (
    "Subtract first, then square: jnp.var(x), or jnp.mean((x - mean) ** 2). Where sums are kept, of batches or of a "
    "window, take a value of the size of the mean off x before they begin; the variance is the same. Running moments "
    "are merged by their centred sums (Chan, Golub and LeVeque, The American Statistician 37, 1983)."
)
LINEAR = (
    "add", "broadcast_in_dim", "concatenate", "conv_general_dilated", "convert_element_type", "copy", "cumsum", "div",
    "dot_general", "dynamic_slice", "expand_dims", "gather", "mul", "reduce_sum", "reduce_window_sum", "reshape",
    "scatter-add", "slice", "squeeze", "sub", "transpose",
)  # fmt: skip
"""What may lie between squares and their mean."""
LEFT_EPS = 64
"""A difference of so many units of rounding, or fewer, has six bits that mean something at most."""
LEAST_SHARE = 0.5
"""Of the elements: a variance that is 0 in some columns is one of what never changes."""


@rule("cancelling-variance", "are variances taken of what is centred?", "warning", needs_trace_only=True)
def cancelling_variance(e: Evidence) -> Iterable[Finding]:
    closed = constants_as_inputs(closed_jaxpr(e))
    found = list(first_of_each_line(one for body in bodies(closed) for one in _differences(body)))
    if not found:
        raise NotApplicable("no mean of squares less the square of a mean is written in it")
    for one in found:
        squares, result = compute_values(e, one.body, [one.step.reads[0], one.step.makes[0]])
        lost = _share_lost(squares, result)
        if lost >= LEAST_SHARE:
            yield _finding(e, one, squares, result, lost)


class _Difference(NamedTuple):
    body: Body
    step: TracedEquation


def _differences(body: Body) -> Iterator[_Difference]:
    for step in body.program.steps:
        if step.name != "sub" or not step.makes[0].is_of(jnp.floating) or not is_users_own(*step.inwards):
            continue
        squares, squared = (body.through(value, ("convert_element_type", "broadcast_in_dim")) for value in step.reads)
        if _is_square(body, squared) and not _is_square(body, squares) and _is_made_of_squares(body, squares):
            yield _Difference(body, step)


def _is_square(body: Body, value: TracedValue) -> bool:
    step = body.maker(value)
    if step is None:
        return False
    is_product = step.name == "mul" and step.reads[0] is step.reads[1]
    return is_product or step.name == "square" or (step.name == "integer_pow" and step.equation.params["y"] == 2)


def _is_made_of_squares(body: Body, value: TracedValue) -> bool:
    """By sums, quotients and parts of them."""
    seen, waiting = set[int](), [value]
    while waiting:
        one = waiting.pop()
        if _is_square(body, one):
            return True
        step = body.maker(one)
        if step is not None and (step.name in LINEAR or _adds_windows(step)) and id(step) not in seen:
            seen.add(id(step))
            waiting += step.reads
    return False


def _adds_windows(step: TracedEquation) -> bool:
    """`jax.lax.reduce_window` with a first value that is computed keeps the name of what it does inside."""
    if step.name != "reduce_window":
        return False
    return [inner.primitive.name for body in nested_in(step.equation) for inner in body.eqns] == ["add"]


def _share_lost(squares: np.ndarray, result: np.ndarray) -> float:
    """Of the elements, those whose difference is of the size of rounding."""
    eps = float(jnp.finfo(result.dtype).eps)
    size, left = np.abs(np.broadcast_to(squares, result.shape).astype(np.float64)), np.abs(result.astype(np.float64))
    known = np.isfinite(size) & np.isfinite(left) & (size > 0)
    return float(np.mean(left[known] <= LEFT_EPS * eps * size[known])) if known.any() else 0.0


def _finding(e: Evidence, one: _Difference, squares: np.ndarray, result: np.ndarray, lost: float) -> Finding:
    step, dtype = one.step, one.step.makes[0].dtype
    typical = float(np.median(np.abs(np.asarray(squares, np.float64))))
    rounding = float(jnp.finfo(dtype).eps) * typical
    return cancelling_variance.finding(
        f"the mean of squares less the square of the mean leaves no digits in {dtype}",
        [
            (
                f"with the arguments of one call {percent(lost)} of {result.size} differences{step.at} are of the size "
                "of rounding"
            ),
            (
                f"the mean of squares is about {typical:.3g}, which {dtype} has in steps of {rounding:.2g}; the "
                f"differences are {float(np.min(result)):.3g} to {float(np.max(result)):.3g}"
            ),
        ],
        ADVICE,
        where=where_of(step.line) or e.def_where,
    )
