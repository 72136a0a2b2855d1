"""Finds `jnp.where` around an operation without a finite derivative: its gradient is NaN where it is not used."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.dataflow import bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.masked_gradients import BadWhere, bad_wheres, is_differentiated
from benchax.auditing.rule import NotApplicable, list_some, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import closed_jaxpr
from benchax.results.audit import Finding
from benchax.units import number


@rule("where-gradient", "is the gradient of each jnp.where finite?", "warning", needs_trace_only=True)
def where_gradient(e: Evidence) -> Iterable[Finding]:
    everything = list(bodies(closed_jaxpr(e)))
    if not is_differentiated(everything):
        raise NotApplicable("no gradient is taken in it")
    yield from (_finding(e, found) for found in bad_wheres(everything))


def _finding(e: Evidence, found: BadWhere) -> Finding:
    names = " and ".join(dict.fromkeys(bad.step.name for bad in found.points))
    seen = [
        f"where {bad.varied} is {number(bad.point) if bad.point else '0'}, the value is "
        f"{number(bad.value) if bad.value else '0'} and the gradient NaN (computed here)"
        for bad in found.points
    ]
    if found.step.line != found.line:
        seen.insert(0, f"jnp.where is{found.step.at}")
    return where_gradient.finding(
        f"the gradient is NaN where jnp.where leaves out {names}",
        list_some(seen),
        "Both sides of jnp.where are computed, and 0 × inf is NaN. Give the operation a harmless number where it is "
        "not used: safe = jnp.where(x > 0, x, 1.0), then jnp.where(x > 0, jnp.sqrt(safe), 0.0).",
        where=where_of(found.line) or e.def_where,
    )
