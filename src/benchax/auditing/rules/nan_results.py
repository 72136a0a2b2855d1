"""Finds where NaN comes from in a function whose results are NaN though nothing that it was given is."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from benchax.auditing.call_data import check_real, inputs_of_call
from benchax.auditing.dataflow import GRADIENT, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.masked_gradients import SINGULAR, bad_wheres
from benchax.auditing.nan_origins import NanOrigin, NonFiniteStep, find_origin, is_nan
from benchax.auditing.rule import rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import closed_jaxpr, flow, loops_and_all
from benchax.auditing.work import count_operations
from benchax.errors import NotMeasured
from benchax.results.audit import Finding

MOST_OPERATIONS = 1e10
"""Of a call that is run again: some seconds."""
MOST_OPERANDS = 4
"""That are told."""
KEEP_WITHIN = {
    "sqrt": "0 or more: jnp.maximum(x, 0.0)",
    "rsqrt": "more than 0: jnp.maximum(x, 1e-6)",
    "log": "more than 0: jnp.maximum(x, 1e-6); of a softmax take jax.nn.log_softmax, of x * log(x) xlogy",
    "log1p": "more than -1: jnp.maximum(x, -1 + 1e-6)",
    "pow": "0 or more where the exponent is no whole number: jnp.maximum(x, 0.0)",
    "acos": "within -1 and 1: jnp.clip(x, -1.0, 1.0)",
    "asin": "within -1 and 1: jnp.clip(x, -1.0, 1.0)",
    "acosh": "1 or more: jnp.maximum(x, 1.0)",
    "atanh": "within -1 and 1: jnp.clip(x, -1 + 1e-6, 1 - 1e-6)",
}  # fmt: skip
"""What an operation needs to be given."""
EXPONENTIALS = ("exp", "exp2", "expm1", "cosh", "sinh")


@rule("nan-results", "where does NaN come from?", "warning", needs_trace_only=True)
def nan_results(e: Evidence) -> Iterable[Finding]:
    closed_jaxpr(e)  # What does not trace is not called either.
    check_real(e)
    if e.nan_at is None:
        raise NotMeasured("no result of it was looked at, which is done of small ones while calls are counted")
    if e.nan_at and (finding := _finding(e, _find(e))) is not None:
        yield finding


def _find(e: Evidence) -> NanOrigin:
    """Runs it again from the arguments of one call.

    Raises:
        NotMeasured: that cannot be done, or shows no NaN.
    """
    closed, given, gave = closed_jaxpr(e), inputs_of_call(e), f"call {e.nan_at} gave NaN"
    if any(one is None for one in given):
        raise NotMeasured(f"{gave}, and an array that it was called with was too large to be kept")
    if any(map(is_nan, (*given, *closed.consts))):
        raise NotMeasured(f"{gave}, and so did what it was given at the call that was kept")
    if count_operations(flow(closed).steps) > MOST_OPERATIONS or any(s.name == "while" for s in loops_and_all(closed)):
        raise NotMeasured(f"{gave}, and it is too long to be run again: where NaN comes from was not looked for")
    origin = find_origin(closed, given)
    if origin is None:
        raise NotMeasured(f"{gave}; with the arguments that were kept none arises but of a NaN in the program")
    return origin


def _finding(e: Evidence, origin: NanOrigin) -> Finding | None:
    cause = origin.infinity or origin.nan
    where = where_of(cause.step.line) or where_of(origin.nan.step.line) or e.def_where
    if where in (where_of(bad.line) for bad in bad_wheres(list(bodies(closed_jaxpr(e))))):
        return None  # where-gradient tells it
    seen = [f"{_describe(origin.nan)}{origin.nan.step.at}{_when(origin.nan)}"]
    if origin.infinity is not None:
        seen.append(f"inf comes of {_describe(origin.infinity)}{origin.infinity.step.at}")
    if origin.given is not None:
        seen.append(f"inf is put in as a number{origin.given.at}")
    is_derivative = GRADIENT in origin.nan.step.scope
    if is_derivative:
        seen.append("this is computed for a derivative; the value itself may be finite there")
    seen.append("computed again from the arguments of one call, none of which is NaN")
    what = f"the derivative of {_differentiated(e, cause)}" if is_derivative else _name(cause)
    return nan_results.finding(f"NaN comes of {what}", seen, _advice(origin, is_derivative), where=where)


# ---- in words ---------------------------------------------------------------------------------------------------


def _name(one: NonFiniteStep) -> str:
    return one.step.name.replace("_", " ")


def _differentiated(e: Evidence, one: NonFiniteStep) -> str:
    """Operations on the same line that may have no finite derivative: a division is also what others' derivatives are
    made of."""
    steps = loops_and_all(closed_jaxpr(e))
    names = {step.name for step in steps if step.name in SINGULAR and step.line == one.step.line}
    return " or ".join(sorted(names - {"div"})) or "this line"


def _when(one: NonFiniteStep) -> str:
    return (
        f", in iteration {' of '.join(str(n + 1) for n in reversed(one.iterations))} of its loop"
        if one.iterations
        else ""
    )


def _describe(one: NonFiniteStep) -> str:
    """sqrt of -1.2e-07 gives nan: one element of the result that is not finite, and what it was made of."""
    made = np.asarray(one.made, float)
    bad = np.isnan(made) if np.isnan(made).any() else np.isinf(made)
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    share = f" ({int(bad.sum())} of {bad.size} elements are)" if bad.size > 1 else ""
    operands = [_operand(value, made.shape, at) for value in one.reads[:MOST_OPERANDS]]
    return f"{_name(one)} of {' and '.join(operands)} gives {made[at]:.3g}{share}"


def _operand(value: Any, shape: tuple[int, ...], at: tuple[int, ...]) -> str:
    try:
        array = np.asarray(value, float)
    except (TypeError, ValueError):  # a random key
        return "a key"
    if array.shape == shape or not array.shape:
        return f"{array[at if array.shape else ()]:.3g}"
    finite = array[np.isfinite(array)]
    span = f" from {finite.min():.3g} to {finite.max():.3g}" if finite.size else ""
    return f"{list(array.shape)}{span}{' with inf' if finite.size < array.size else ''}"


def _advice(origin: NanOrigin, is_derivative: bool) -> str:
    cause = origin.infinity or origin.nan
    name = cause.step.name
    if is_derivative:
        return (
            "Give the operation of this line a harmless number where its derivative is infinite, before it: "
            "safe = jnp.where(x > 0, x, 1.0), then jnp.where(x > 0, jnp.sqrt(safe), 0.0); or keep it away from there: "
            "jnp.sqrt(x + 1e-12). A norm is the root of a sum of squares, and has no derivative at 0."
        )
    if name in KEEP_WITHIN:
        return f"What it is given must be {KEEP_WITHIN[name]}."
    if name in EXPONENTIALS:
        return "Keep it from overflowing: subtract the largest before exp, as jax.nn.softmax does, or bound it."
    if name in ("div", "rem"):
        return "Keep the divisor from 0: jnp.where(n > 0, total / jnp.where(n > 0, n, 1), 0.0), or jnp.maximum(n, 1)."
    if name == "cholesky":
        return (
            "The matrix is not positive definite: add a small number to its diagonal, a + 1e-6 * jnp.eye(n), or "
            "compute in float64."
        )
    if name == "gather":
        return "An index lies outside, where NaN is given: look at how it is computed."
    if origin.given is not None:
        return (
            "inf - inf and 0 * inf are NaN: a row in which all is masked has nothing left. Mask with a large finite "
            "number, or leave such rows out with jnp.where before and after."
        )
    return "Look at what it is given there, and keep it within what the operation has a value for."
