"""Finds sums and products of bf16 and f16 that are accumulated in bf16 and f16."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.dataflow import bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Gain, NotApplicable, probe, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import closed_jaxpr, loops_and_all
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments.running_sums import LOW, find_running_sums
from benchax.experiments.variant_rows import scientific
from benchax.experiments.variants.precision import Accumulated
from benchax.results.audit import Finding

MANTISSA = {"bfloat16": 8, "float16": 11}
LEAST_GAIN = 2.0
"""The error is this many times smaller, or there is nothing to say."""


MANY = 256
"""Terms; from here on one more of the same size is less than half a digit of a sum in bf16."""
ADVICE = (
    "Sum in float32: jnp.matmul(a, b, preferred_element_type=jnp.float32), jnp.sum(x, dtype=jnp.float32), in a "
    "loop a carry of float32; then convert the result. In what time: benchax experiment --variants accumulate-f32."
)


@rule(
    "low-precision-accumulation", "are sums of bf16 and f16 accumulated in float32?", "warning", needs_trace_only=True
)
def low_precision_accumulation(e: Evidence) -> Iterable[Finding]:
    values = [value for step in loops_and_all(closed_jaxpr(e)) for value in step.makes]
    if not any(str(value.dtype) in LOW for value in values):
        raise NotApplicable("it computes nothing in bf16 or f16")
    if e.why_not_called:
        yield from _seen_in_loops(e)
        return
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
    # An error of nothing cannot be made smaller: 0 is no more than twice 0.
    is_better = now.max_rel > 0 and now.max_rel >= LEAST_GAIN * wide.max_rel
    if not is_better and not now.overflows > wide.overflows:
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
        ADVICE,
        where=e.def_where,
        gain=Gain(f"measured: error {change}"),
    )


def _seen_in_loops(e: Evidence) -> Iterable[Finding]:
    """What may not be called cannot be compared with float64; how often a loop adds is known all the same."""
    for body in bodies(closed_jaxpr(e)):
        for step in body.program.steps:
            trips = step.equation.params.get("length") if step.name == "scan" else None
            sums = find_running_sums(step.equation) if trips is not None and trips >= MANY else []
            for each in sums:
                dtype = str(each.total.aval.dtype)
                yield low_precision_accumulation.finding(
                    f"a loop adds up {trips} terms in {dtype}",
                    [
                        f"a carry of {dtype} to which each of {trips} iterations adds, in the loop{step.at}",
                        (
                            f"{dtype} has {MANTISSA[dtype]} bits: a sum of equal terms stops growing after "
                            f"{2 ** MANTISSA[dtype]}; the error was not measured, because the function was not called"
                        ),
                    ],
                    ADVICE,
                    where=where_of(step.line) or e.def_where,
                )
    raise NotMeasured(e.why_not_called)
