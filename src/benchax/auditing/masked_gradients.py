"""Gradients of `jnp.where`, and of products with masks, that are NaN where the value is finite.

The elementwise operations behind each are computed by themselves, at a few points.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from benchax.program.index import ELEMENTWISE, KEEPS, TracedOp, TracedProgram, Value
from benchax.program.jaxpr import names

SINGULAR = names("sqrt rsqrt cbrt log log1p div pow acos asin atanh acosh integer_pow")
STACKS = {"stack": "axis", "concatenate": "dimension"}
ALONG_FIRST = {**STACKS, "argmax": "axes"}
"""The operations that `jnp.select` makes of its conditions, and the parameter that names the axis: the first one lists
them."""
SPREADS = KEEPS | {"broadcast_in_dim"}
MOST_OPS = 40
POINTS = (0.0, 1.0, -1.0, 0.5, 2.0, 4.0, -4.0, 10.0, -10.0)
APART = 0.77, 0.39
"""The first of several inputs, and the distance from each to the next: no two are alike, or one of `POINTS`."""


class BadPoint(NamedTuple):
    """Where a result is finite and its gradient is not a number."""

    op: TracedOp
    """The first operation that has no finite derivative there."""
    varied: str
    point: float
    value: float


class BadWhere(NamedTuple):
    """A choice that a gradient goes through."""

    op: TracedOp
    points: Sequence[BadPoint]

    @property
    def line(self) -> str:
        """The line of the operation, whose input is to be made safe, not that of `jnp.where`."""
        return self.points[0].op.line or self.op.line


def differentiated_lines(program: TracedProgram) -> set[str]:
    return {op.line for op in program.ops if op.is_backward and op.line}


def bad_wheres(program: TracedProgram) -> Iterator[BadWhere]:
    """The first of each line."""
    differentiated, told = differentiated_lines(program), set[str]()
    for op in program.find("select_n", "mul", "dot_general"):
        if op.line in differentiated - told and (found := _bad_points(op, differentiated)):
            told.add(op.line)
            yield BadWhere(op, found)


@dataclass(frozen=True)
class _Elementwise:
    """The elementwise operations behind one result, in their order, and the values that they begin with."""

    ops: list[TracedOp]
    roots: list[Value]

    @property
    def floats(self) -> list[Value]:
        return [root for root in self.roots if root.is_of(jnp.floating)]


def _bad_points(choice: TracedOp, differentiated: set[str]) -> list[BadPoint]:
    """The part of the program between the inputs of a choice and its result is computed by itself."""
    deciding = _deciding(choice)
    if deciding is None:
        return []
    part = _behind(choice.reads if choice.name == "dot_general" else choice.makes, differentiated)
    if choice.name == "dot_general":
        part.ops.append(choice)
    if not part.floats or len(part.ops) > MOST_OPS or not any(op.name in SINGULAR for op in part.ops):
        return []
    decisive = _behind([deciding], differentiated).roots
    literals = [v.number for op in part.ops for v in op.reads if v.literal is not None and v.number is not None]
    signed = {sign * x for x in literals for sign in (1, -1) if np.isfinite(x)}
    points = list(dict.fromkeys([*POINTS, *sorted(signed)]))
    found: list[BadPoint] = []
    for root in (one for one in part.floats if one in decisive):
        # Inputs that are all 1 can be bad by themselves: 1 / (a - b).
        value, bad = _evaluate(part, root, points)
        _, bad_apart = _evaluate(part, root, points, are_apart=True)
        for i in np.flatnonzero(bad) if bad_apart.any() else ():
            op = _first_singular(part, root, points[i]) or choice
            found.append(BadPoint(op, f"the {root.spec} behind it", points[i], float(value[i])))
    return found


def _deciding(choice: TracedOp) -> Value | None:
    """The condition of a choice; of a product the factor that is a mask of zeros and ones, if one is."""
    if choice.name == "select_n":
        return choice.reads[0]
    return next((read for read in choice.reads if _is_mask(read)), None)


def _is_mask(value: Value) -> bool:
    source = value.back()
    if source.maker is not None and source.maker.name == "select_n":
        return {0.0, 1.0} == {read.number for read in source.maker.reads[1:]}
    return source.is_of(jnp.bool_) and source.literal is None


def _behind(values: Sequence[Value], differentiated: set[str]) -> _Elementwise:
    """A value that no derivative goes through is an input: distances between points that are data, for instance."""
    taken, roots, waiting = set[TracedOp](), dict[Value, None](), list(values)
    while waiting and len(taken) <= MOST_OPS:
        value = waiting.pop().back(SPREADS)
        maker = value.maker
        is_data = (
            maker is not None and value.is_of(jnp.floating) and bool(maker.line) and maker.line not in differentiated
        )
        if maker is not None and not is_data and _is_elementwise(maker):
            waiting += maker.reads if maker not in taken else ()
            taken.add(maker)
        elif value.literal is None:
            roots[value] = None
    return _Elementwise([op for op in values[0].body.ops if op in taken], list(roots))


def _is_elementwise(op: TracedOp) -> bool:
    if op.name in ALONG_FIRST:
        is_one_each = op.name != "concatenate" or all(value.shape[0] == 1 for value in op.reads)
        return is_one_each and op.params[ALONG_FIRST[op.name]] in (0, (0,))
    return op.name in ELEMENTWISE and len(op.makes) == 1


def _evaluate(
    part: _Elementwise, varied: Value, points: list[float], *, are_apart: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """(the result at each point of one input, is it finite while a derivative is NaN?). The other inputs are 1, or
    different numbers if they `are_apart`."""
    others = [APART[0] + APART[1] * i if are_apart else 1.0 for i in range(len(part.floats))]
    known = {root: jnp.full(len(points), other, root.dtype) for root, other in zip(part.floats, others, strict=True)}

    # The gradient of another input, such as a factor in front, can be NaN where nothing asks for it.
    def compute(x: jax.Array) -> jax.Array:
        return [made for _, _, made in _run(part, known | {varied: x}, len(points))][-1]

    value, pull = jax.vjp(compute, jnp.asarray(points, varied.dtype))
    is_nan = np.isnan(np.asarray(pull(jnp.ones_like(value))[0], float))
    return np.asarray(value, float), np.isfinite(np.asarray(value, float)) & is_nan


def _first_singular(part: _Elementwise, varied: Value, point: float) -> TracedOp | None:
    """The first operation whose own derivative is not finite there."""
    known = {root: jnp.full(1, point if root is varied else 1.0, root.dtype) for root in part.floats}
    for op, operands, made in _run(part, known, 1):
        if op.name in SINGULAR and jnp.issubdtype(made.dtype, jnp.floating):
            _, pull = jax.vjp(functools.partial(op.equation.primitive.bind, **op.params), *operands)
            if not all(np.all(np.isfinite(g)) for g in pull(jnp.ones_like(made))):
                return op
    return None


def _run(part: _Elementwise, known: dict[Value, Any], n: int) -> Iterator[tuple[TracedOp, list[jax.Array], jax.Array]]:
    """Each operation with its operands and its result, at n points; what is not known is 1."""
    known = {root: jnp.ones(n, root.dtype) for root in part.roots} | known
    for op in part.ops:
        read = [value.back(SPREADS) for value in op.reads]
        operands = [known[v] if v.literal is None else jnp.full(n, v.literal, v.dtype) for v in read]
        if op.name in STACKS:
            made = jnp.stack(operands)
        elif op.name == "dot_general":
            made = operands[0] * operands[1]
        else:
            made = op.equation.primitive.bind(*operands, **op.params)
        known[op.makes[0]] = made
        yield op, operands, made
