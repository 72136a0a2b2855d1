"""Finds strongly typed scalars that widen bf16 or f16, and weakly typed outputs that are fed back and compile again."""

from __future__ import annotations

from collections.abc import Iterable

import jax.numpy as jnp

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import list_some, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr, is_asked_for, jaxpr_facts, loops_and_all
from benchax.results.audit import Finding
from benchax.units import size

LOW = ("bfloat16", "float16")
SCALAR_PASSES = ("broadcast_in_dim", "convert_element_type", "reshape")
"""What a scalar goes through before it meets an array."""


@rule("weak-type-promotion", "do the types of scalars change those of arrays?", "warning")
def weak_type_promotion(e: Evidence) -> Iterable[Finding]:
    steps = list(loops_and_all(closed_jaxpr(e)))
    widened = list(_widened_by_scalars(steps))
    if widened:
        yield _describe_widened(e, widened)
    # Whether a program feeds it back is known: compiled-twice tells what was compiled again.
    if not e.why_not_called:
        yield from _fed_back(e)


def _describe_widened(e: Evidence, widened: list[tuple[TracedEquation, TracedEquation]]) -> Finding:
    seen = [
        f"{converts.reads[0].spec} becomes {converts.makes[0].spec} for {meets.name} with a strongly typed scalar"
        f"{meets.at}"
        for converts, meets in widened
    ]
    added = sum(c.makes[0].size_bytes - c.reads[0].size_bytes for c, _ in widened)
    seen = [*list_some(seen), f"{size(added)} more are computed with, as traced"]
    return weak_type_promotion.finding(
        f"a scalar widens {widened[0][0].reads[0].spec} to {widened[0][0].makes[0].dtype}",
        seen,
        "Use a Python number, which is weakly typed and takes the dtype of the array, or give the scalar that "
        "dtype: scale.astype(x.dtype).",
        where=where_of(widened[0][1].line) or e.def_where,
    )


def _fed_back(e: Evidence) -> Iterable[Finding]:
    facts = jaxpr_facts(e)
    strong = {i.spec: i.path for i in facts.inputs if not i.is_weak}
    # Only what looks like an input can be meant to be fed back.
    weak = [o for o in facts.outputs if o.is_weak and o.spec in strong]
    if weak:
        seen = [f"{o.path} is a weakly typed {o.spec}, {strong[o.spec]} a strongly typed one" for o in weak]
        yield weak_type_promotion.finding(
            f"{len(weak)} outputs are weakly typed" if len(weak) > 1 else "an output is weakly typed",
            list_some(seen),
            "Fed back into the next call, it compiles the function a second time. Give it a dtype: "
            "jnp.asarray(value, dtype), jnp.full(shape, value, dtype).",
            where=e.def_where,
            severity="info",
        )


def _widened_by_scalars(steps: list[TracedEquation]) -> Iterable[tuple[TracedEquation, TracedEquation]]:
    """(the conversion of an array, the operation with a scalar that it is made for)"""
    made = {id(value): step for step in steps for value in step.makes}
    for step in steps:
        if len(step.reads) < 2:
            continue
        for value in step.reads:
            source = made.get(id(value))
            # In the jaxpr `x.astype(f32) * s` looks the same: only frames tell what somebody wrote on purpose.
            if source is not None and _widens(source) and not is_asked_for(source):
                others = [v for v in step.reads if v is not value]
                if any(_is_wide_scalar(other, made) for other in others):
                    yield source, step


def _widens(step: TracedEquation) -> bool:
    is_array = step.name == "convert_element_type" and bool(step.reads[0].shape)
    return is_array and str(step.reads[0].dtype) in LOW and str(step.makes[0].dtype) not in LOW


def _is_wide_scalar(value: TracedValue, made: dict[int, TracedEquation]) -> bool:
    # Back to where the scalar was one: by the time it meets the array, it may have the shape of that.
    while id(value) in made and made[id(value)].name in SCALAR_PASSES:
        value = made[id(value)].reads[0]
    return not value.shape and value.is_of(jnp.floating) and str(value.dtype) not in LOW
