"""Gradients of `jnp.where` that are NaN where its value is finite: what is behind each is computed at a few points."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.dataflow import GRADIENT, Body
from benchax.auditing.traced import TracedEquation, TracedValue

SINGULAR = ("sqrt", "rsqrt", "cbrt", "log", "log1p", "div", "pow", "acos", "asin", "atanh", "acosh", "integer_pow")
ELEMENTWISE = (
    *SINGULAR, "add", "sub", "mul", "neg", "abs", "sign", "max", "min", "exp", "exp2", "expm1", "sin", "cos", "tan",
    "tanh", "logistic", "square", "gt", "lt", "ge", "le", "eq", "ne", "and", "or", "not", "select_n", "is_finite",
    "convert_element_type", "clamp", "atan", "atan2", "stop_gradient", "copy", "erf", "add_any",
)  # fmt: skip
STACKS = {"stack": "axis", "concatenate": "dimension"}
ALONG_FIRST = {**STACKS, "argmax": "axes"}
"""What `jnp.select` makes of its conditions, and the parameter that names the axis: the first one lists them."""
MOST_STEPS = 40
POINTS = (0.0, 1.0, -1.0, 0.5, 2.0, 4.0, -4.0, 10.0, -10.0)
APART = 0.77, 0.39
"""Of several inputs the first, and from each to the next: no two are alike, or one of `POINTS`."""


class BadPoint(NamedTuple):
    """Where a result is finite and its gradient is not a number."""

    step: TracedEquation
    """The first operation that has no finite derivative there."""
    varied: str
    point: float
    value: float


class BadWhere(NamedTuple):
    """A `jnp.where` that a gradient goes through."""

    step: TracedEquation
    points: Sequence[BadPoint]

    @property
    def line(self) -> str:
        """What the operation is given is to be made safe, so it is its line, not that of `jnp.where`."""
        return self.points[0].step.line or self.step.line


def is_differentiated(everything: Sequence[Body]) -> bool:
    return bool(_differentiated(everything))


def _differentiated(everything: Sequence[Body]) -> set[str]:
    return {s.line for body in everything for s in body.program.steps if GRADIENT in s.scope and s.line}


def bad_wheres(everything: Sequence[Body]) -> Iterator[BadWhere]:
    """Those of a program and the bodies in it, one of each line."""
    differentiated = _differentiated(everything)
    told: set[str] = set()
    for body in everything:
        for step in body.program.steps:
            if step.name == "select_n" and step.line in differentiated - told and GRADIENT not in step.scope:
                found = _bad_points(body, step, differentiated)
                if found:
                    told.add(step.line)
                    yield BadWhere(step, found)


@dataclass(frozen=True)
class _Part:
    """The elementwise operations behind one result, in their order, and the values that they begin with."""

    steps: list[TracedEquation]
    roots: list[TracedValue]

    @property
    def floats(self) -> list[TracedValue]:
        return [root for root in self.roots if jnp.issubdtype(root.dtype, jnp.floating)]


def _bad_points(body: Body, select: TracedEquation, differentiated: Set[str]) -> list[BadPoint]:
    """The part of the program between the inputs of `jnp.where` and its result is computed by itself."""
    part = _behind(body, select.makes[0], differentiated)
    if not any(step.name in SINGULAR for step in part.steps) or not part.floats or len(part.steps) > MOST_STEPS:
        return []
    decisive = {id(root) for root in _behind(body, select.reads[0], differentiated).roots}
    points = _points(part.steps)
    found: list[BadPoint] = []
    for root in part.floats:
        if id(root) in decisive:
            # Inputs that are all 1 may be bad by themselves: 1 / (a - b).
            value, bad = _evaluate(body, part, root, points)
            _, bad_apart = _evaluate(body, part, root, points, are_apart=True)
            for i in np.flatnonzero(bad) if bad_apart.any() else ():
                step = _first_singular(body, part, root, points[i]) or select
                found.append(BadPoint(step, f"the {root.spec} behind it", points[i], float(value[i])))
    return found


def _behind(body: Body, value: TracedValue, differentiated: Set[str]) -> _Part:
    """What no derivative goes through, such as distances between points that are data, is an input."""
    taken: dict[int, TracedEquation] = {}
    roots: dict[int, TracedValue] = {}
    waiting = [value]
    while waiting and len(taken) <= MOST_STEPS:
        value = _unbroadcast(body, waiting.pop())
        step = body.maker(value)
        is_data = value.is_of(jnp.floating) and step is not None and bool(step.line) and step.line not in differentiated
        if step is not None and not is_data and _is_elementwise(step):
            if id(value) not in taken:
                taken[id(value)] = step
                waiting += step.reads
        elif value.literal is None:
            roots[id(value)] = value
    in_order = [step for step in body.program.steps if len(step.makes) == 1 and id(step.makes[0]) in taken]
    return _Part(in_order, list(roots.values()))


def _is_elementwise(step: TracedEquation) -> bool:
    if step.name in ALONG_FIRST:
        is_one_each = step.name != "concatenate" or all(value.shape[0] == 1 for value in step.reads)
        return is_one_each and step.equation.params[ALONG_FIRST[step.name]] in (0, (0,))
    return step.name in ELEMENTWISE and len(step.makes) == 1


def _unbroadcast(body: Body, value: TracedValue) -> TracedValue:
    return body.through(value, ("broadcast_in_dim", "reshape", "squeeze", "expand_dims"))


def _points(steps: Sequence[TracedEquation]) -> list[float]:
    """Numbers that stand in the operations are where conditions change."""
    literals = {float(v.literal) for s in steps for v in s.reads if v.literal is not None and np.ndim(v.literal) == 0}
    signed = {sign * x for x in literals for sign in (1, -1) if np.isfinite(x)}
    return list(dict.fromkeys([*POINTS, *sorted(signed)]))


def _evaluate(
    body: Body, part: _Part, varied: TracedValue, points: list[float], *, are_apart: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """The result at each point of one input, the others being 1, and whether it is finite and a derivative by a float
    input is NaN. `are_apart`: the others are different numbers."""
    others = [APART[0] + APART[1] * i if are_apart else 1.0 for i in range(len(part.floats))]
    given = [
        jnp.asarray(points if root is varied else np.full(len(points), other), root.dtype)
        for root, other in zip(part.floats, others, strict=True)
    ]

    def compute(*values: jax.Array) -> jax.Array:
        known = dict(zip(map(id, part.floats), values, strict=True))
        return [made for _, _, made in _run(body, part, known, len(points))][-1]

    value, pull = jax.vjp(compute, *given)
    is_nan = np.any([np.isnan(np.asarray(g, float)) for g in pull(jnp.ones_like(value))], axis=0)
    return np.asarray(value, float), np.isfinite(np.asarray(value, float)) & is_nan


def _first_singular(body: Body, part: _Part, varied: TracedValue, point: float) -> TracedEquation | None:
    """The first operation whose own derivative is not finite there."""
    known = {id(root): jnp.full(1, point if root is varied else 1.0, root.dtype) for root in part.floats}
    for step, operands, made in _run(body, part, known, 1):
        if step.name in SINGULAR and jnp.issubdtype(made.dtype, jnp.floating):
            _, pull = jax.vjp(functools.partial(step.equation.primitive.bind, **step.equation.params), *operands)
            if not all(np.all(np.isfinite(g)) for g in pull(jnp.ones_like(made))):
                return step
    return None


def _run(
    body: Body, part: _Part, known: dict[int, Any], n: int
) -> Iterator[tuple[TracedEquation, list[jax.Array], jax.Array]]:
    """Each operation with its operands and its result, at n points; what is not known is 1."""
    known = {id(root): jnp.ones(n, root.dtype) for root in part.roots} | known
    for step in part.steps:
        read = [_unbroadcast(body, v) for v in step.reads]
        operands = [known[id(v)] if v.literal is None else jnp.full(n, v.literal, v.dtype) for v in read]
        if step.name in STACKS:
            known[id(step.makes[0])] = jnp.stack(operands)
        else:
            known[id(step.makes[0])] = step.equation.primitive.bind(*operands, **step.equation.params)
        yield step, operands, known[id(step.makes[0])]
