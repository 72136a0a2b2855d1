"""Where the values of a traced program come from: who made one, from which inputs, and along which axes it varies.

Programs are taken as `traced.flow` has them, with inner jits inlined; the bodies of loops and branches are programs of
their own (`bodies`), whose first inputs may be the same in each iteration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from jax.extend import core

from benchax.auditing.traced import TracedEquation, TracedProgram, TracedValue, flow

GRADIENT = "transpose("
"""Part of the scope of an operation that a reverse-mode derivative has made."""


@dataclass(frozen=True, eq=False)
class Body:
    """A program, or the body of a loop or branch in it."""

    program: TracedProgram
    constants: int = 0
    """Of a loop's body: so many first inputs are the same in each iteration."""
    trips: int | None = None
    """Iterations of the loop; None: it is no loop, or of unknown length."""
    is_loop: bool = False
    of: TracedEquation | None = None
    """The loop or branch."""
    outer: Body | None = None
    """What it stands in."""

    @cached_property
    def makers(self) -> dict[int, TracedEquation]:
        return {id(value): step for step in self.program.steps for value in step.makes}

    @property
    def carries(self) -> list[tuple[TracedValue, TracedValue]]:
        """Of a loop's body: each carry as the body takes it and as it returns it."""
        assert self.of is not None
        carried = len(self.of.split_operands(self.of.reads).carry)
        return list(zip(self.program.inputs[self.constants :], self.program.outputs[:carried], strict=False))

    @cached_property
    def uses(self) -> Counter[int]:
        """How often each value is read, or given out, by its id."""
        found = Counter(id(value) for step in self.program.steps for value in step.reads)
        found.update(id(value) for value in self.program.outputs)
        return found

    @cached_property
    def _readers(self) -> dict[int, list[TracedEquation]]:
        found: dict[int, list[TracedEquation]] = {}
        for step in self.program.steps:
            for number in dict.fromkeys(map(id, step.reads)):
                found.setdefault(number, []).append(step)
        return found

    def readers(self, value: TracedValue) -> list[TracedEquation]:
        """Steps that read it, each once."""
        return self._readers.get(id(value), [])

    def is_output(self, value: TracedValue) -> bool:
        return any(value is one for one in self.program.outputs)

    def maker(self, value: TracedValue) -> TracedEquation | None:
        return self.makers.get(id(value))

    def origin(self, value: TracedValue) -> tuple[Body, TracedValue]:
        """Where a value comes from that is the same in each iteration: (what makes it stands there, the value)."""
        at = next((i for i, one in enumerate(self.program.inputs[: self.constants]) if one is value), None)
        if at is None or self.of is None or self.outer is None:
            return self, value
        first = self.of.equation.params.get("cond_nconsts", 0)
        return self.outer.origin(self.of.reads[first + at])

    def sources(self, value: TracedValue) -> set[int]:
        """Positions of the inputs that a value depends on."""
        positions = {id(one): i for i, one in enumerate(self.program.inputs)}
        found, seen, waiting = set[int](), set[int](), [value]
        while waiting:
            one = waiting.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            if id(one) in positions:
                found.add(positions[id(one)])
            elif (step := self.maker(one)) is not None:
                waiting += step.reads
        return found

    def through(self, value: TracedValue, names: tuple[str, ...]) -> TracedValue:
        """What a value is made of, back through operations of these names."""
        while (step := self.maker(value)) is not None and step.name in names:
            value = step.reads[0]
        return value

    def varying_axes(self, value: TracedValue) -> frozenset[int]:
        """Axes along which it may have different elements, as far as broadcasts tell."""
        step = self.maker(value)
        axes = frozenset(i for i, n in enumerate(value.shape) if n > 1)
        if step is None or not step.reads:
            return axes
        source = step.reads[0]
        if step.name == "broadcast_in_dim":
            kept = step.equation.params["broadcast_dimensions"]
            inner = self.varying_axes(source)
            return frozenset(to for i, to in enumerate(kept) if i in inner)
        if step.name in ("convert_element_type", "neg", "copy"):
            return self.varying_axes(source)
        if step.name in ("reshape", "expand_dims") and (placed := _kept_axes(source.shape, value.shape)) is not None:
            inner = self.varying_axes(source)
            return frozenset(placed[i] for i in inner if i in placed)
        return axes


def _kept_axes(before: tuple[int, ...], after: tuple[int, ...]) -> dict[int, int] | None:
    """Where each axis is after a reshape that only adds or takes away axes of length 1; None for others."""
    long = [i for i, n in enumerate(before) if n != 1], [i for i, n in enumerate(after) if n != 1]
    if [before[i] for i in long[0]] != [after[i] for i in long[1]]:
        return None
    return dict(zip(*long, strict=True))


def bodies(closed: Any) -> Iterator[Body]:
    """The program, and every body in it."""
    yield from _bodies(Body(flow(closed)))


def _bodies(body: Body) -> Iterator[Body]:
    yield body
    for step in body.program.steps:
        for name, value in step.equation.params.items():
            for each in value if isinstance(value, list | tuple) else (value,):
                if isinstance(each, core.ClosedJaxpr):
                    yield from _bodies(_body(step, name, each, body))


def _body(step: TracedEquation, name: str, closed: Any, outer: Body) -> Body:
    if (step.name, name) not in (("scan", "jaxpr"), ("while", "body_jaxpr")):
        return Body(flow(closed), of=step, outer=outer)
    consts, trips = step.split_operands(step.reads).consts, step.equation.params.get("length")
    return Body(flow(closed), len(consts), trips, is_loop=True, of=step, outer=outer)
