"""Forward passes that a traced program does a second time, after an update, with the data of the first.

The scope of a derivative marks the first pass. The second pass is not differentiated, and does the same operations at
the same lines. It reads the same data together with parameters that depend on the gradient. With the same parameters,
XLA makes the two passes one, as it does with every repeated computation on the same values. So this module numbers
values in the same way.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from benchax.program.index import FORWARD, Body, TracedOp, TracedProgram, Value
from benchax.program.jaxpr import own_frames, user_line
from benchax.results.audit import Where

BEGINS = ("conv_general_dilated", "dot_general", "gather", "scan", "while")
"""The operations that a pass can begin with: they take data and parameters together."""
ADDS, LIMITS = ("add", "add_any", "sub"), ("clamp", "max", "min", "select_n")
"""How a parameter is updated, and what can be done to it then."""
MOST_OPS = 50
"""Operations of an update that are looked at."""


@dataclass(frozen=True)
class SecondForward:
    """The operations of a second pass that are known from the first one."""

    ops: list[TracedOp]
    first: TracedOp
    """The operation of the first pass that reads the same data."""

    @property
    def work(self) -> float:
        return sum(op.work for op in self.ops)

    @property
    def where(self) -> Where | None:
        """The user's line at which the way to the second pass leaves the way to the first."""
        return _parting(self.ops[0], self.first)

    @property
    def where_first(self) -> Where | None:
        return _parting(self.first, self.ops[0])


def _parting(one: TracedOp, other: TracedOp) -> Where | None:
    here, there = (
        [(frame.file, frame.line) for equation in (*op.calls, op.equation) for frame in own_frames(equation)]
        for op in (one, other)
    )
    return next((line for line in here if line not in there), None)


def key_of(op: TracedOp) -> tuple[Hashable, ...]:
    """The name of an operation, its line, and the shapes that it makes: they are the same in both passes."""
    # The derivative of a loop makes what the backward pass needs as well.
    shapes = () if op.name in ("scan", "while") else tuple(value.spec for value in op.makes)
    return (op.name, next(filter(None, map(user_line, op.inwards)), ""), *shapes)


def find_second_forward(program: TracedProgram, body: Body) -> SecondForward | None:
    """The second pass of this body, if its results reach nothing but numbers and what is new in its outputs."""
    if not any(op.is_backward for op in body.ops):
        return None
    passes = _Passes(body, program.numbers)
    found: list[TracedOp] = []
    inside, counted, begun = set[Value](), set[Hashable](), None
    for op in body.ops:
        depends = bool(inside.intersection(op.reads))
        others = [] if FORWARD in op.scope else passes.first.get(key_of(op), [])
        if not depends:
            repeated = [one for one in others if passes.is_repeated(op, one)]
            begun, others = (repeated[0], others) if begun is None and repeated else (begun, repeated)
        if others and op.name in BEGINS and not any(passes.has_same_data(op, one, inside) for one in others):
            return None  # it is of other data
        # XLA computes once what is computed twice from the same values, as for two metrics.
        numbers = {passes.numbers[value] for value in op.makes}
        found += [op] if others and not numbers <= counted else []
        counted |= numbers
        inside.update(op.makes if depends or others else ())
    # Parameters and other state come back as inputs; what is only reported does not.
    states = {value.spec for value in body.inputs if value.size > 1}
    is_state = any(value.spec in states for value in body.outputs if value in inside and value.size > 1)
    return None if begun is None or is_state else SecondForward(found, begun)


class _Passes:
    """The first pass of a body, and how other values are related to its own."""

    def __init__(self, body: Body, numbers: Mapping[Value, Hashable]) -> None:
        self.numbers = numbers
        self.updated = set[Value]()
        """Values that depend on what a derivative has made backwards."""
        self.first: dict[Hashable, list[TracedOp]] = {}
        for op in body.ops:
            if op.is_backward or self.updated.intersection(op.reads):
                self.updated.update(op.makes)
            if FORWARD in op.scope and not op.is_backward:
                self.first.setdefault(key_of(op), []).append(op)

    def is_repeated(self, op: TracedOp, first: TracedOp) -> bool:
        """Does it read updated parameters where the first reads those before, and otherwise the same data?"""
        if op.name not in BEGINS or len(op.reads) != len(first.reads):
            return False
        pairs = [(value, one) for value, one in zip(op.reads, first.reads, strict=True) if value.size > 1]
        changed = [self._is_update(value, one) for value, one in pairs if self.numbers[value] != self.numbers[one]]
        return bool(changed) and all(changed) and len(changed) < len(pairs)

    def has_same_data(self, op: TracedOp, first: TracedOp, inside: set[Value]) -> bool:
        """Is all that it reads of the second pass, a parameter, or what the first reads?"""
        read = {self.numbers[value] for value in first.reads}
        outer = (value for value in op.reads if value not in inside | self.updated and value.size > 1)
        return all(self.numbers[value] in read for value in outer)

    def _is_update(self, value: Value, before: Value) -> bool:
        """Is it `before` with something of the gradient added? An average of many updates is another model."""
        before, waiting = before.back(), [value]
        for _ in range(MOST_OPS):
            op = waiting.pop().back().maker if waiting else None
            if op is not None and op.name in ADDS:
                scaled = (read.maker.reads for read in op.reads if read.maker is not None and read.maker.name == "mul")
                terms = [*op.reads, *(factor for factors in scaled for factor in factors)]
                if any(self.numbers[term.back()] == self.numbers[before] for term in terms):
                    return value in self.updated
            if op is not None and op.name in (*ADDS, *LIMITS):
                waiting += op.reads
        return False
