"""Finds integers that wrap around with the arguments of a call: differences of images, sums and products of int32."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

import numpy as np

from benchax.auditing.evidence import Evidence
from benchax.auditing.integer_wraps import NARROW, IntegerStep, exact, integer_steps, wraps
from benchax.auditing.kept_values import compute_values
from benchax.auditing.rule import NotApplicable, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.tolerance_loops import constants_as_inputs
from benchax.auditing.traced import closed_jaxpr, first_of_each_line
from benchax.errors import NotMeasured
from benchax.results.audit import Finding

MOST_COMPUTED = 20
SIGNS = {"add": "+", "sub": "-", "mul": "*"}
WORDS = {
    "integer_pow": "a power", "reduce_sum": "a sum", "reduce_prod": "a product", "cumsum": "a running sum",
    "cumprod": "a running product",
}  # fmt: skip


@rule("integer-overflow", "do integers stay within their range?", "warning", needs_trace_only=True)
def integer_overflow(e: Evidence) -> Iterable[Finding]:
    found = list(islice(integer_steps(constants_as_inputs(closed_jaxpr(e))), MOST_COMPUTED + 1))
    if not found:
        raise NotApplicable("no integers that could wrap are computed in it, outside of loops")
    wrapped: list[IntegerStep] = []
    findings: list[Finding] = []
    why = ""
    for each in found[:MOST_COMPUTED]:
        try:
            finding = _look(e, each)
        except NotMeasured as error:
            why = why or error.problem
            continue
        if finding is not None:
            wrapped.append(each)
            findings.append(finding)
    first = {id(each) for each in first_of_each_line(wrapped)}
    yield from (finding for each, finding in zip(wrapped, findings, strict=True) if id(each) in first)
    if why or len(found) > MOST_COMPUTED:
        raise NotMeasured(why or f"more than {MOST_COMPUTED} operations are too many to be computed again")


def _look(e: Evidence, each: IntegerStep) -> Finding | None:
    """Computes it once more with the arguments of one call, and without a limit."""
    step = each.step
    reads = [value for value in step.reads if value.literal is None]
    computed = iter(compute_values(e, each.body, [*reads, step.makes[0]]))
    operands = [next(computed) if v.literal is None else np.asarray(v.literal, v.dtype) for v in step.reads]
    result, unlimited = next(computed), exact(step, operands)
    bad = wraps(step, unlimited)
    if not np.any(bad):
        return None
    at = tuple(np.argwhere(np.atleast_1d(bad))[0])
    should, does = np.atleast_1d(unlimited)[at], np.atleast_1d(result)[at]
    of = [np.broadcast_to(one, result.shape) for one in operands] if step.name in SIGNS else []
    terms = f" {SIGNS[step.name]} ".join(str(np.atleast_1d(one)[at]) for one in of) if of else WORDS[step.name]
    made = f"{terms} is {does} in {each.dtype}" + (f", not {should:.0f}" if of else f" where it is {should:.6g}")
    return _finding(e, each, [f"with the arguments of one call {int(np.sum(bad))} of {bad.size} results wrap", made])


def _finding(e: Evidence, each: IntegerStep, seen: list[str]) -> Finding:
    step, dtype, info = each.step, each.dtype, np.iinfo(each.step.makes[0].dtype)
    what = {"add": "a sum", "sub": "a difference", "mul": "a product"}.get(step.name) or WORDS[step.name]
    if dtype in NARROW:
        advice = "Convert before it: x.astype(jnp.int32), or x.astype(jnp.float32) where fractions follow."
    else:
        advice = (
            "Compute it in float32, x.astype(jnp.float32), where seven digits are enough; where all are needed, in "
            "int64 with jax_enable_x64. Times and other numbers with a large offset: take it off in NumPy first."
        )
    return integer_overflow.finding(
        f"{what} in {dtype} wraps around",
        [*seen, f"{step.makes[0].spec} has numbers from {info.min} to {info.max}"],
        advice,
        where=where_of(step.line) or e.def_where,
    )
