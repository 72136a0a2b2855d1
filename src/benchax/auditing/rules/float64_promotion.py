"""Finds programs that compute in float64 though no input asks for it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp

from benchax.auditing.evidence import Evidence
from benchax.auditing.fixed_parts import parts
from benchax.auditing.input_names import name_inputs
from benchax.auditing.recorder.hooks import WIDE
from benchax.auditing.rule import NotApplicable, list_some, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedProgram, TracedValue, closed_jaxpr, flow, loops_and_all
from benchax.results.audit import Finding
from benchax.units import count, size

LEAST_SHARE, LEAST_OPERATIONS = 0.5, 1 << 20
"""Operations in float64, of a function that is given float64."""


@rule("float64-promotion", "does it compute in float64 without being asked?", "warning", needs_trace_only=True)
def float64_promotion(e: Evidence) -> Iterable[Finding]:
    if not jax.config.read("jax_enable_x64"):
        raise NotApplicable("jax_enable_x64 is off, so that nothing is float64")
    closed = closed_jaxpr(e)
    inputs = [aval for aval in closed.in_avals if hasattr(aval, "dtype")]
    # In x64 mode every Python float is a weakly typed float64: nobody has asked for float64 by passing one.
    if any(str(aval.dtype) in WIDE and not getattr(aval, "weak_type", False) for aval in inputs):
        yield from _of_inputs(e, closed)
        return
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
        where=where_of(_line_of_constant(e, flow(closed)) or begins[0].line) or e.def_where,
    )


def _line_of_constant(e: Evidence, program: TracedProgram) -> str:
    """The line that makes a float64 constant, of which JAX tells nothing; empty where there is none, or several make
    such an array."""
    known = {id(value) for value in (*program.inputs, *(made for step in program.steps for made in step.makes))}
    constants = [
        value
        for step in program.steps
        for value in step.reads
        if id(value) not in known and value.literal is None and value.shape and _is_wide(value)
    ]
    lines = [e.wide_lines.get(value.spec, ()) for value in constants]
    return next((line for line, *others in filter(None, lines) if not others), "")


def _of_inputs(e: Evidence, closed: Any) -> Iterable[Finding]:
    """A state of float32 that comes back as float32, and is computed in float64 for what it meets: nobody keeps what
    float64 gives."""
    program = flow(closed)
    narrow = [v for v in program.inputs if v.shape and v.is_of(jnp.inexact) and not _is_wide(v)]
    returned = {v.spec for v in program.outputs}
    is_state = sum(v.size_bytes for v in narrow if v.spec in returned) * 2 > sum(v.size_bytes for v in narrow) > 0
    if not is_state or any(_is_wide(v) and v.shape for v in program.outputs):
        raise NotApplicable("its inputs are float64: it was asked for")
    found = parts(closed, frozenset())
    wide = sum(p.operations for p in found if any(_is_wide(v) and v.shape for v in p.step.makes))
    total = sum(p.operations for p in found)
    if wide < max(LEAST_OPERATIONS, LEAST_SHARE * total):
        return
    names = name_inputs(e, len(program.inputs))
    given = [f"{names[i]} {v.spec}" for i, v in enumerate(program.inputs) if v.shape and _is_wide(v)]
    if not given:
        raise NotApplicable("its inputs are float64: it was asked for")
    lines = {line for each in e.wide_lines.values() for line in each}
    seen = [
        f"float64 among its inputs: {', '.join(list_some(given))}",
        f"{count(wide)} of {count(total)} operations make float64 arrays, counted from the shapes",
        "no array that it returns is float64: its state is float32 before and after",
        *list_some([f"makes float64 arrays without being asked: {line}" for line in sorted(lines)]),
    ]
    yield float64_promotion.finding(
        "computes in float64 what it returns as float32",
        seen,
        "Convert its inputs where they are made: jnp.asarray(x, jnp.float32). With jax_enable_x64, an array of NumPy "
        "stays float64, and so does all that meets it.",
        where=where_of(lines.pop()) if len(lines) == 1 else e.def_where,
    )


def _is_wide(value: TracedValue) -> bool:
    return str(value.dtype) in WIDE


def _describe(step: TracedEquation) -> str:
    made = next(v for v in step.makes if _is_wide(v))
    return f"{step.name} makes {made.spec}{step.at}"
