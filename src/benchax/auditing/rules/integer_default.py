"""Finds integer arrays that become floats: `jnp.arange(n)` is int32, and its author may not know."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, rule, try_variant
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr, flow
from benchax.case import Case
from benchax.experiments.functions import CallArguments, change_arrays
from benchax.measuring.inputs import make_inputs
from benchax.results.audit import Finding
from benchax.units import size

LARGE_ELEMENTS = 1024
PASSES = ("neg", "abs", "add", "sub", "mul", "reshape", "transpose", "broadcast_in_dim", "squeeze", "slice")
"""What keeps an integer an integer on the way to its conversion."""


@rule("integer-default", "are its floats made of integers?", "info")
def integer_default(e: Evidence) -> Iterable[Finding]:
    program = flow(closed_jaxpr(e))
    facts = e.inspection.jaxpr
    paths = [i.path for i in facts.inputs] if facts else []
    integers = [v for v in program.inputs if _is_large_integer(v)]
    if not integers:
        raise NotApplicable(f"no input is an integer array of {LARGE_ELEMENTS} elements or more")
    converted = _find_conversions(program.inputs, program.steps)
    if not converted:
        return
    seen = [
        f"{paths[i] if i < len(paths) else f'input {i}'} {program.inputs[i].spec}, "
        f"{size(program.inputs[i].size_bytes)}, is converted to {step.makes[0].dtype}"
        f"{step.at}"
        for i, step in converted.items()
    ]
    # All large integers at once. Where one of them is an index as well, that fails, and the gain is not measured.
    result = try_variant(e, "given as floats", replace(e.plain_case, inputs=_Floats(e.plain_case, e.seed)))
    yield integer_default.finding(
        f"{len(converted)} of {len(program.inputs)} inputs are integers that become floats",
        [*seen, result.sentence],
        "If they are numbers to compute with and no indices, make them floats where they are made: "
        "jnp.arange(n, dtype=jnp.float32). Overflow and rounding are those of integers until the conversion.",
        where=where_of(next(iter(converted.values())).line) or e.def_where,
        gain=result.gain,
    )


def _is_large_integer(value: TracedValue) -> bool:
    return value.is_of(jnp.integer) and math.prod(value.shape) >= LARGE_ELEMENTS


def _find_conversions(inputs: tuple[TracedValue, ...], steps: tuple[TracedEquation, ...]) -> dict[int, TracedEquation]:
    """The integer inputs that end in a conversion to floats, each with that conversion."""
    come_from = {id(v): i for i, v in enumerate(inputs) if _is_large_integer(v)}
    found: dict[int, TracedEquation] = {}
    for step in steps:
        origin = next((come_from[id(v)] for v in step.reads if id(v) in come_from), None)
        if origin is None:
            continue
        if step.name == "convert_element_type" and step.makes[0].is_of(jnp.floating):
            found.setdefault(origin, step)
        elif step.name in PASSES:
            come_from[id(step.makes[0])] = origin
    return found


@dataclass(frozen=True)
class _Floats:
    """An input factory: large integer arrays as float32."""

    case: Case
    seed: int

    def __call__(self) -> CallArguments:
        made = make_inputs(self.case, self.seed)
        return change_arrays(made, lambda _, leaf: _as_float(leaf))


def _as_float(leaf: Any) -> Any:
    is_large_integer = leaf.size >= LARGE_ELEMENTS and jnp.issubdtype(leaf.dtype, jnp.integer)
    return leaf.astype(jnp.float32) if is_large_integer else leaf
