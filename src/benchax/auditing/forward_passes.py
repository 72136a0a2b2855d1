"""Forward passes that a traced program does a second time, after an update, with the data of the first.

The first is that of a derivative, known by its scope. The second is not differentiated, does the same operations at the
same lines, and reads the same data beside parameters that depend on the gradient. With the same parameters XLA makes
one of the two, as it does with all that is computed twice of the same values; so values are numbered here as well.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchax.auditing.dataflow import GRADIENT, Body
from benchax.auditing.derivatives import DERIVATIVE
from benchax.auditing.traced import TracedEquation, TracedValue
from benchax.auditing.work import count_operations, elements
from benchax.program.jaxpr import own_frames, user_line
from benchax.results.audit import Where

BEGINS = ("conv_general_dilated", "dot_general", "gather", "scan", "while")
"""What a pass may begin with: what takes data and parameters together."""
MOVES = ("broadcast_in_dim", "convert_element_type", "copy", "reshape", "squeeze", "transpose", "stop_gradient")
ADDS, LIMITS = ("add", "add_any", "sub"), ("clamp", "max", "min", "select_n")
"""How a parameter is updated, and what may be done to it then."""
MOST_STEPS = 50
"""Of an update that are looked at."""
Key = tuple[Hashable, ...]
"""What is the same of an operation in both passes: its name, its line, and the shapes that it makes."""


@dataclass(frozen=True)
class SecondForward:
    """The operations of a second pass that are known from the first one."""

    steps: Sequence[TracedEquation]
    first: TracedEquation
    """The one of the first pass that reads the same data."""
    total: float
    """Operations of the body that both are in."""

    @property
    def operations(self) -> float:
        return count_operations(self.steps)

    @property
    def where(self) -> Where | None:
        """The user's line at which the way to the second pass parts from the way to the first."""
        return _parting(self.steps[0], self.first)

    @property
    def where_first(self) -> Where | None:
        return _parting(self.first, self.steps[0])


def _parting(one: TracedEquation, other: TracedEquation) -> Where | None:
    others = set(_own_lines(other))
    return next((line for line in _own_lines(one) if line not in others), None)


def find_second_forward(body: Body) -> SecondForward | None:
    """The one of this body, if its results reach nothing but numbers and what is new in its outputs."""
    steps = body.program.steps
    if not any(GRADIENT in step.scope for step in steps):
        return None
    passes = _Passes(body)
    found: list[TracedEquation] = []
    inside, counted, begun = set[int](), set[Any](), None
    for step in steps:
        depends = any(id(value) in inside for value in step.reads)
        others = () if DERIVATIVE in step.scope else passes.first.get(key_of(step), ())
        if not depends and begun is None:
            begun = next((one for one in others if passes.is_repeated(step, one)), None)
            others = others if begun is not None else ()
        elif not depends:
            others = [one for one in others if passes.is_repeated(step, one)]
        if others and step.name in BEGINS and not any(passes.has_same_data(step, one, inside) for one in others):
            return None  # it is of other data
        # What is computed twice of the same, as for two metrics, XLA computes once.
        is_new = any(passes.numbers[id(value)] not in counted for value in step.makes)
        counted |= {passes.numbers[id(value)] for value in step.makes}
        found += [step] if others and is_new else []
        inside |= {id(value) for value in step.makes if depends or others}
    if begun is None or not _is_only_reported(body, inside):
        return None
    return SecondForward(found, begun, count_operations(steps))


class _Passes:
    """The first pass of a body, and how values of others are akin to its own."""

    def __init__(self, body: Body) -> None:
        self.body = body
        self.numbers = _number_values(body)
        self.updated = _behind_gradient(body)
        self.first: dict[Key, list[TracedEquation]] = {}
        for step in body.program.steps:
            if DERIVATIVE in step.scope and GRADIENT not in step.scope:
                self.first.setdefault(key_of(step), []).append(step)

    def is_repeated(self, step: TracedEquation, first: TracedEquation) -> bool:
        """Does it read updated parameters where the first reads those before, and the same data beside them?"""
        if step.name not in BEGINS or len(step.reads) != len(first.reads):
            return False
        pairs = [(value, one) for value, one in zip(step.reads, first.reads, strict=True) if elements(value) > 1]
        changed = [self._is_update(value, one) for value, one in pairs if not self._is_same(value, one)]
        return bool(changed) and all(changed) and len(changed) < len(pairs)

    def has_same_data(self, step: TracedEquation, first: TracedEquation, inside: set[int]) -> bool:
        """Is all that it reads of the second pass, a parameter, or what the first reads?"""
        read = {self.numbers[id(value)] for value in first.reads}
        outer = (value for value in step.reads if id(value) not in inside | self.updated and elements(value) > 1)
        return all(self.numbers[id(value)] in read for value in outer)

    def _is_same(self, value: TracedValue, other: TracedValue) -> bool:
        return self.numbers[id(value)] == self.numbers[id(other)]

    def _is_update(self, value: TracedValue, before: TracedValue) -> bool:
        """Is it `before` with something of the gradient added? An average of many updates is another model."""
        before, waiting = self.body.through(before, MOVES), [value]
        for _ in range(MOST_STEPS):
            step = self.body.maker(self.body.through(waiting.pop(), MOVES)) if waiting else None
            if step is not None and step.name in ADDS:
                terms = [*step.reads, *(factor for term in step.reads for factor in self._scaled(term))]
                if any(self._is_same(self.body.through(term, MOVES), before) for term in terms):
                    return id(value) in self.updated
            if step is not None and step.name in (*ADDS, *LIMITS):
                waiting += step.reads
        return False

    def _scaled(self, value: TracedValue) -> Sequence[TracedValue]:
        step = self.body.maker(value)
        return step.reads if step is not None and step.name == "mul" else ()


def key_of(step: TracedEquation) -> Key:
    lines = (user_line(each) for each in (step.equation, *reversed(step.calls)))
    # The derivative of a loop makes what the backward pass needs as well.
    shapes = () if step.name in ("scan", "while") else tuple(value.spec for value in step.makes)
    return (step.name, next(filter(None, lines), ""), *shapes)


def _behind_gradient(body: Body) -> set[int]:
    """Values that depend on what a derivative has made backwards."""
    found = set[int]()
    for step in body.program.steps:
        if GRADIENT in step.scope or any(id(value) in found for value in step.reads):
            found |= {id(value) for value in step.makes}
    return found


def _is_only_reported(body: Body, inside: set[int]) -> bool:
    """Is what depends on it a number, or else unlike all inputs? Parameters and other state come back as inputs."""
    states = {value.spec for value in body.program.inputs if elements(value) > 1}
    return all(
        value.spec not in states for value in body.program.outputs if id(value) in inside and elements(value) > 1
    )


def _number_values(body: Body) -> dict[int, Any]:
    """Of each value a number, which is the same for what is computed in the same way of the same."""
    numbers: dict[int, Any] = {}
    known: dict[Hashable, int] = {}

    def of(value: TracedValue) -> Any:
        if value.literal is not None and np.ndim(value.literal) == 0:
            numbers[id(value)] = (str(value.literal), value.spec)
        return numbers.setdefault(id(value), (len(numbers), "new"))

    for value in body.program.inputs:
        of(value)
    for step in body.program.steps:
        read = tuple(of(value) for value in step.reads)
        made_by = (step.name, _params(step), read)
        number = known.setdefault(made_by, len(known))
        numbers.update({id(value): (number, i) for i, value in enumerate(step.makes)})
    for value in body.program.outputs:
        of(value)
    return numbers


def _params(step: TracedEquation) -> Hashable:
    params = tuple(sorted(step.equation.params.items()))
    try:
        hash(params)
    except TypeError:
        return id(step)
    return params


def _own_lines(step: TracedEquation) -> list[Where]:
    """Lines in the user's files that led to it, outermost first."""
    return [(one.file, one.line) for equation in (*step.calls, step.equation) for one in own_frames(equation)]
