"""Finds sums and products of bf16 and f16 that are accumulated in bf16 and f16."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Gain, NotApplicable, probe, rule
from benchax.auditing.traced import closed_jaxpr, loops_and_all
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments.running_sums import LOW
from benchax.experiments.variant_rows import scientific
from benchax.experiments.variants.precision import Accumulated
from benchax.results.audit import Finding

LEAST_GAIN = 2.0
"""The error is this many times smaller, or there is nothing to say."""


@rule("low-precision-accumulation", "are sums of bf16 and f16 accumulated in float32?", "warning")
def low_precision_accumulation(e: Evidence) -> Iterable[Finding]:
    values = [value for step in loops_and_all(closed_jaxpr(e)) for value in step.makes]
    if not any(str(value.dtype) in LOW for value in values):
        raise NotApplicable("it computes nothing in bf16 or f16")
    try:
        variant = Accumulated().change(e.case, seed=e.seed).case
    except NotAvailable as error:
        raise NotApplicable(error.problem) from error
    now, wide = (seen.errors for seen in probe(e, "accumulated in float32", variant))
    if now is None or wide is None or now.max_rel is None or wide.max_rel is None:
        raise NotMeasured("the errors against a run in float64 could not be taken")
    # Errors against the function itself say nothing of how exact it is.
    if now.reference != "float64":
        raise NotMeasured("the run in float64 failed, so that errors cannot be told")
    if now.max_rel < LEAST_GAIN * wide.max_rel and not now.overflows > wide.overflows:
        return
    change = f"{scientific(now.max_rel)} → {scientific(wide.max_rel)}"
    seen = [f"largest error against a run in float64: {change} of the largest value"]
    if now.median_rel is not None and wide.median_rel is not None:
        seen.append(f"median relative error: {scientific(now.median_rel)} → {scientific(wide.median_rel)}")
    if now.overflows > wide.overflows:
        seen.append(f"infinite where float64 is finite: {now.overflows} → {wide.overflows}")
    yield low_precision_accumulation.finding(
        "sums lose digits that float32 would keep",
        seen,
        "Sum in float32: jnp.matmul(a, b, preferred_element_type=jnp.float32), jnp.sum(x, dtype=jnp.float32), in a "
        "loop a carry of float32; then convert the result. In what time: benchax experiment --variants accumulate-f32.",
        where=e.def_where,
        gain=Gain(f"measured: error {change}"),
    )
