"""Finds a compiled function without inputs: all that it computes is known before it runs."""

from __future__ import annotations

from collections.abc import Iterable

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import rule
from benchax.auditing.traced import jaxpr_facts
from benchax.results.audit import Finding
from benchax.results.inspection import Inspection
from benchax.units import size

TRIVIAL = ("constant", "parameter", "tuple", "copy", "bitcast", "get-tuple-element")
"""Instructions that compute nothing."""


@rule("zero-argument-jit", "does it compute from arguments?", "warning")
def zero_argument_jit(e: Evidence) -> Iterable[Finding]:
    jaxpr = jaxpr_facts(e)
    if jaxpr.inputs or not jaxpr.equations:
        return
    yield zero_argument_jit.finding(
        "has no arguments: what it computes is known before it runs",
        [f"none of its {jaxpr.equations} operations depends on an input", *_describe_remainder(e.inspection)],
        "Pass the data as arguments. XLA may work out at compile time all that depends on none: the time of a "
        "call then says nothing about the computation, and the result is held by the compiled program. If that "
        "is what you want, compute it once and keep the array.",
        where=e.def_where,
    )


def _describe_remainder(i: Inspection) -> list[str]:
    """What the compiler made of it."""
    seen: list[str] = []
    if i.counts is not None:
        left = sum(count for opcode, count in i.counts.instructions if opcode not in TRIVIAL)
        computed = "the compiled program computes nothing: all was folded while compiling"
        seen.append(computed if not left else f"{left} instructions are left that compute something")
    if i.constants is not None and i.constants.captured_bytes:
        seen.append(f"it closes over {size(i.constants.captured_bytes)} of arrays")
    if i.constants is not None and i.constants.baked_in_bytes:
        seen.append(f"the compiled program holds {size(i.constants.baked_in_bytes)} of constants")
    return seen
