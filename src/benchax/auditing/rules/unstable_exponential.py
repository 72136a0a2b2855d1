"""Finds exponentials that overflow, and logarithms of what has underflown, where JAX has a function that does not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from benchax.auditing.evidence import Evidence
from benchax.auditing.exponentials import Exponential, Form, exponentials
from benchax.auditing.kept_values import compute_values
from benchax.auditing.rule import NotApplicable, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.tolerance_loops import constants_as_inputs
from benchax.auditing.traced import closed_jaxpr, first_of_each_line
from benchax.errors import NotMeasured
from benchax.results.audit import Finding


class _Form(NamedTuple):
    written: str
    threshold: str
    """With {over}, {under} and {one}: exponents at which exp is infinite, 0, and nothing beside 1."""
    advice: str


FORMS: Mapping[Form, _Form] = {
    "log-sum-exp": _Form(
        "log(sum(exp(x)))",
        "infinite where an x is above {over}, and -inf where all are below -{under}",
        "Use jax.nn.logsumexp(x, axis=…), with b=w for a sum of w * exp(x); of a mean, take off log(n).",
    ),
    "log-add-exp": _Form(
        "log(exp(x) + exp(y))",
        "infinite where x or y is above {over}, and -inf where both are below -{under}",
        "Use jnp.logaddexp(x, y).",
    ),
    "log-softmax": _Form(
        "log(softmax(x))",
        "-inf where an x is some {under} below the largest of its row",
        "Use jax.nn.log_softmax(x, axis=…), and take the labels' elements of it.",
    ),
    "log-sigmoid": _Form("log(sigmoid(x))", "-inf where x is below -{under}", "Use jax.nn.log_sigmoid(x)."),
    "log-one-minus-sigmoid": _Form("log(1 - sigmoid(x))", "-inf where x is above {one}", "Use jax.nn.log_sigmoid(-x)."),
    "softplus": _Form("log(1 + exp(x))", "infinite where x is above {over}", "Use jax.nn.softplus(x)."),
    "softmax": _Form(
        "exp(x) / sum(exp(x))",
        "NaN where an x is above {over}, or all of them are below -{under}",
        "Use jax.nn.softmax(x, axis=…).",
    ),
    "sigmoid": _Form("exp(x) / (1 + exp(x))", "NaN where x is above {over}", "Use jax.nn.sigmoid(x)."),
}


@rule("unstable-exponential", "do exponentials stay finite?", "warning", needs_trace_only=True)
def unstable_exponential(e: Evidence) -> Iterable[Finding]:
    found = list(first_of_each_line(exponentials(constants_as_inputs(closed_jaxpr(e)))))
    if not found:
        raise NotApplicable("no logarithm or quotient of exponentials is written in it")
    for each in found:
        try:
            shown, why = _show(e, each), ""
        except NotMeasured as error:
            shown, why = None, error.problem
        if shown is not None:
            yield _finding(e, each, [shown])
        elif not each.is_bounded and _bits(each) <= 32:
            yield _finding(e, each, [f"whether it happens was not seen: {why}"] if why else [NOT_THERE], "info")


NOT_THERE = "with the arguments of one call, which were kept, it does not happen"


def _show(e: Evidence, each: Exponential) -> str | None:
    """What comes out, if it is not finite where the exponent is; else None."""
    exponent, result, *weights = compute_values(e, each.body, [each.exponent, each.step.makes[0], *each.weights])
    are_exponents_finite = bool(np.all(np.isfinite(np.asarray(exponent, np.float64))))
    bad = ~np.isfinite(np.asarray(result, np.float64))
    if not (are_exponents_finite and np.any(bad)) or any(np.any(np.asarray(w, np.float64) <= 0) for w in weights):
        return None
    kinds = ", ".join(sorted({str(value) for value in np.unique(np.asarray(result, np.float64)[bad])}))
    lowest, highest = float(np.min(exponent)), float(np.max(exponent))
    return (
        f"with the arguments of one call {int(np.sum(bad))} of {bad.size} results are {kinds}, "
        f"where the exponent is from {lowest:.4g} to {highest:.4g}"
    )


def _bits(each: Exponential) -> int:
    return 8 * np.dtype(each.exponent.dtype).itemsize


def _thresholds(dtype: Any) -> dict[str, str]:
    info = jnp.finfo(dtype)
    tiny = -float(np.log(np.float64(info.tiny)))
    return {
        "over": f"{math.log(float(info.max)):.0f}",
        "under": f"{tiny:.0f}",
        "one": f"{-math.log(float(info.eps) / 4):.0f}",
    }


def _finding(e: Evidence, each: Exponential, shown: list[str], severity: Any = None) -> Finding:
    form, dtype = FORMS[each.form], each.exponent.dtype
    seen = [*shown, f"{form.written} of {each.exponent.spec} is {form.threshold.format(**_thresholds(dtype))}"]
    return unstable_exponential.finding(
        f"{form.written} {'is not finite' if severity is None else 'overflows or underflows for large x'}",
        seen,
        form.advice,
        where=where_of(each.step.line) or e.def_where,
        severity=severity,
    )
