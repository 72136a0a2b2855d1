"""Finds `jnp.where` around an operation without a finite derivative: its gradient is NaN where it is not used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.dataflow import GRADIENT, Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable, list_some, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr
from benchax.results.audit import Finding
from benchax.units import number

SINGULAR = ("sqrt", "rsqrt", "cbrt", "log", "log1p", "div", "pow", "acos", "asin", "atanh", "acosh", "integer_pow")
ELEMENTWISE = (
    *SINGULAR, "add", "sub", "mul", "neg", "abs", "sign", "max", "min", "exp", "exp2", "expm1", "sin", "cos", "tan",
    "tanh", "logistic", "square", "gt", "lt", "ge", "le", "eq", "ne", "and", "or", "not", "select_n", "is_finite",
    "convert_element_type", "clamp", "atan", "atan2", "stop_gradient", "copy", "erf", "add_any",
)  # fmt: skip
MOST_STEPS = 40
POINTS = (0.0, 1.0, -1.0, 0.5, 2.0)


@rule("where-gradient", "is the gradient of each jnp.where finite?", "warning", needs_trace_only=True)
def where_gradient(e: Evidence) -> Iterable[Finding]:
    everything = list(bodies(closed_jaxpr(e)))
    differentiated = {s.line for body in everything for s in body.program.steps if GRADIENT in s.scope and s.line}
    if not differentiated:
        raise NotApplicable("no gradient is taken in it")
    told: set[str] = set()
    for body in everything:
        for step in body.program.steps:
            if step.name == "select_n" and step.line in differentiated - told and GRADIENT not in step.scope:
                found = _bad_points(body, step)
                if found:
                    told.add(step.line)
                    yield _finding(e, step, found)


def _finding(e: Evidence, step: TracedEquation, found: Sequence[tuple[str, str, float, float]]) -> Finding:
    names = " and ".join(dict.fromkeys(name for name, *_ in found))
    seen = [
        f"where {what} is {number(point) if point else '0'}, the value is {number(value) if value else '0'} and the "
        "gradient NaN (computed here)"
        for _, what, point, value in found
    ]
    return where_gradient.finding(
        f"the gradient is NaN where jnp.where leaves out {names}",
        list_some(seen),
        "Both sides of jnp.where are computed, and 0 × inf is NaN. Give the operation a harmless number where it is "
        "not used: safe = jnp.where(x > 0, x, 1.0), then jnp.where(x > 0, jnp.sqrt(safe), 0.0).",
        where=where_of(step.line) or e.def_where,
    )


@dataclass(frozen=True)
class _Part:
    """The elementwise operations behind one result, in their order, and the values that they begin with."""

    steps: list[TracedEquation]
    roots: list[TracedValue]

    @property
    def floats(self) -> list[TracedValue]:
        return [root for root in self.roots if jnp.issubdtype(root.dtype, jnp.floating)]


def _bad_points(body: Body, select: TracedEquation) -> list[tuple[str, str, float, float]]:
    """(operation, what is varied, its value, the result) where the result is finite and its gradient is not a
    number. The part of the program between the inputs of `jnp.where` and its result is computed by itself."""
    part = _behind(body, select.makes[0])
    singular = [step.name for step in part.steps if step.name in SINGULAR]
    if not singular or not part.floats or len(part.steps) > MOST_STEPS:
        return []
    decisive = {id(root) for root in _behind(body, select.reads[0]).roots}
    points = _points(part.steps)
    found: list[tuple[str, str, float, float]] = []
    for root in part.floats:
        if id(root) in decisive:
            value, gradients = _evaluate(body, part, root, points)
            bad = np.isfinite(value) & np.any([np.isnan(g) for g in gradients], axis=0)
            what = f"the {root.spec} behind it"
            found += [(singular[-1], what, points[i], float(value[i])) for i in np.flatnonzero(bad)]
    return found


def _behind(body: Body, value: TracedValue) -> _Part:
    taken: dict[int, TracedEquation] = {}
    roots: dict[int, TracedValue] = {}
    waiting = [value]
    while waiting and len(taken) <= MOST_STEPS:
        value = _unbroadcast(body, waiting.pop())
        step = body.maker(value)
        if step is not None and step.name in ELEMENTWISE and len(step.makes) == 1:
            if id(value) not in taken:
                taken[id(value)] = step
                waiting += step.reads
        elif value.literal is None:
            roots[id(value)] = value
    in_order = [step for step in body.program.steps if len(step.makes) == 1 and id(step.makes[0]) in taken]
    return _Part(in_order, list(roots.values()))


def _unbroadcast(body: Body, value: TracedValue) -> TracedValue:
    return body.through(value, ("broadcast_in_dim", "reshape", "squeeze", "expand_dims"))


def _points(steps: Sequence[TracedEquation]) -> list[float]:
    """Numbers that stand in the operations are where conditions change."""
    literals = {float(v.literal) for s in steps for v in s.reads if v.literal is not None and np.ndim(v.literal) == 0}
    signed = {sign * x for x in literals for sign in (1, -1) if np.isfinite(x)}
    return list(dict.fromkeys([*POINTS, *sorted(signed)]))


def _evaluate(body: Body, part: _Part, varied: TracedValue, points: list[float]) -> tuple[np.ndarray, list[np.ndarray]]:
    """The result at each point of one input, the others being 1, and its derivatives by all float inputs."""
    n = len(points)
    given = [jnp.asarray(points if root is varied else np.ones(n), root.dtype) for root in part.floats]
    others = {id(root): jnp.ones(n, root.dtype) for root in part.roots}

    def compute(*values: jax.Array) -> jax.Array:
        known: dict[int, Any] = others | {id(r): v for r, v in zip(part.floats, values, strict=True)}
        for step in part.steps:
            read = [_unbroadcast(body, v) for v in step.reads]
            operands = [known[id(v)] if v.literal is None else jnp.full(n, v.literal, v.dtype) for v in read]
            known[id(step.makes[0])] = step.equation.primitive.bind(*operands, **step.equation.params)
        return known[id(part.steps[-1].makes[0])]

    value, pull = jax.vjp(compute, *given)
    return np.asarray(value, float), [np.asarray(g, float) for g in pull(jnp.ones_like(value))]
