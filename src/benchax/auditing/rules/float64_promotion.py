"""Finds programs that compute in float64 though no input asks for it."""

from __future__ import annotations

from collections.abc import Iterable

import jax
import jax.numpy as jnp

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, list_some, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr, loops_and_all
from benchax.results.audit import Finding
from benchax.units import size

WIDE = ("float64", "complex128")


@rule("float64-promotion", "does it compute in float64 without being asked?", "warning", needs_trace_only=True)
def float64_promotion(e: Evidence) -> Iterable[Finding]:
    if not jax.config.read("jax_enable_x64"):
        raise NotApplicable("jax_enable_x64 is off, so that nothing is float64")
    closed = closed_jaxpr(e)
    inputs = [aval for aval in closed.in_avals if hasattr(aval, "dtype")]
    # In x64 mode every Python float is a weakly typed float64: nobody has asked for float64 by passing one.
    if any(str(aval.dtype) in WIDE and not getattr(aval, "weak_type", False) for aval in inputs):
        raise NotApplicable("its inputs are float64: it was asked for")
    steps = list(loops_and_all(closed))
    wide = [step for step in steps if any(_is_wide(v) for v in step.makes)]
    arrays = [step for step in wide if any(_is_wide(v) and v.shape for v in step.makes)]
    if not arrays:
        return
    # Where the first wide array of each chain comes from: nothing that the step reads is a wide array.
    begins = [step for step in arrays if not any(_is_wide(v) and v.shape for v in step.reads)] or arrays[:1]
    total = sum(v.size_bytes for step in arrays for v in step.makes if _is_wide(v))
    seen = list_some([_describe(step) for step in begins])
    seen.append(f"{len(arrays)} of {len(steps)} equations make float64 arrays, {size(total)} as traced")
    narrow = sorted({str(aval.dtype) for aval in inputs if jnp.issubdtype(aval.dtype, jnp.inexact)})
    yield float64_promotion.finding(
        f"float64 out of {' and '.join(narrow) or 'integer'} inputs",
        seen,
        "Give constants and conversions the dtype of the inputs: x.astype(y.dtype), jnp.zeros(n, y.dtype), and "
        "Python numbers in place of NumPy's, which are strongly float64.",
        where=where_of(begins[0].line) or e.def_where,
    )


def _is_wide(value: TracedValue) -> bool:
    return str(value.dtype) in WIDE


def _describe(step: TracedEquation) -> str:
    made = next(v for v in step.makes if _is_wide(v))
    return f"{step.name} makes {made.spec}{step.at}"
