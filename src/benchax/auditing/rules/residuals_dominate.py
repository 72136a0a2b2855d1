"""Finds values that the forward pass keeps for the backward pass, where they take most of the memory."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Gain, NotApplicable, list_some, rule
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr, flow
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import size

LARGE_BYTES = 1 << 20
SHARE = 0.5
"""The share of the memory that the program needs beside its arguments."""


@rule("residuals-dominate", "is most of its memory kept for the backward pass?", "info")
def residuals_dominate(e: Evidence) -> Iterable[Finding]:
    steps = flow(closed_jaxpr(e)).steps
    # JAX puts "transpose(jvp(…))" around the names of what it makes for the backward pass.
    if not any("transpose(" in step.scope for step in steps):
        raise NotApplicable("it takes no gradient in reverse mode, as far as JAX tells (0.6 does not)")
    memory = e.inspection.memory
    temp = memory.temp_bytes if memory else None
    if temp is None:
        raise NotMeasured(e.inspection.why_absent("memory") or "the compiler does not tell its temporaries")
    kept = residuals(steps)
    total = sum(value.size_bytes for value, _ in kept)
    # Of what is traced, XLA makes some again instead of keeping it: then the plan has no room for it.
    if total < LARGE_BYTES or temp < SHARE * total:
        return
    seen = list_some([f"{v.spec}, {size(v.size_bytes)}, of {step.name}{step.at}" for v, step in kept])
    seen.append(f"as traced, {size(total)} are kept from the forward to the backward pass")
    seen.append(f"the compiled program has {size(temp)} of temporaries; it may keep less and compute some again")
    most = min(total, temp)
    yield residuals_dominate.finding(
        f"{size(total)} of residuals in {size(temp)} of temporaries",
        seen,
        "jax.checkpoint around the layers keeps their inputs alone and computes the rest again. That costs time, "
        "and XLA may make no less memory of it: benchax experiment with the variant remat measures both.",
        where=e.def_where,
        gain=Gain(f"estimated: at most {size(most)}", bytes=most),
    )


def residuals(steps: tuple[TracedEquation, ...]) -> list[tuple[TracedValue, TracedEquation]]:
    """What steps of the forward pass make and steps of the backward pass read; largest first."""
    backward = {id(value) for step in steps if "transpose(" in step.scope for value in step.reads}
    forward = [step for step in steps if "transpose(" not in step.scope]
    kept = [(value, step) for step in forward for value in step.makes if id(value) in backward]
    return sorted(kept, key=lambda pair: -pair[0].size_bytes)
