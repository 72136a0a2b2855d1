"""What becomes of the outputs that a scan stacks: is the stack read as a whole, or reduced, or are a few rows taken?

Each value behind the loop is one of three: it has a row for each iteration, made of nothing but that row of the stacks
and of what is known before the loop (so that the body could make it); or it depends on the loop otherwise (its carry,
several rows); or it does not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from benchax.auditing.dataflow import Body
from benchax.auditing.traced import TracedEquation, TracedValue

FEW = 8
"""What is needed of a stack is at most one byte in so many."""
ELEMENTWISE = (
    "abs", "acos", "acosh", "add", "and", "asin", "asinh", "atan", "atan2", "atanh", "cbrt", "ceil", "clamp",
    "convert_element_type", "copy", "cos", "cosh", "div", "eq", "erf", "erf_inv", "erfc", "exp", "exp2", "expm1",
    "floor", "ge", "gt", "imag", "integer_pow", "is_finite", "le", "lgamma", "log", "log1p", "logistic", "lt",
    "max", "min", "mul", "ne", "neg", "not", "or", "pow", "real", "rem", "round", "rsqrt", "select_n", "sign",
    "sin", "sinh", "sqrt", "square", "stop_gradient", "sub", "tan", "tanh", "xor",
)  # fmt: skip
ACCUMULATED = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or")
"""Reductions that a carry can hold from step to step."""
REDUCTIONS = (*ACCUMULATED, "argmax", "argmin")


class Need(NamedTuple):
    """What is read of a stack, in the end."""

    kind: str
    """"rows": some of them; "total": a reduction over them; "each": something small of each; "indexed": a row, which
    the caller takes."""
    step: TracedEquation | None
    """What makes it: a slice, a reduction; None of what is given out."""
    value: TracedValue

    @property
    def size_bytes(self) -> int:
        return self.value.size_bytes // (self.value.shape[0] if self.kind == "indexed" else 1)


@dataclass
class Stack:
    """One output of a scan that has a row for each iteration."""

    position: int
    """Among the outputs of the body."""
    value: TracedValue
    needs: list[Need] = field(default_factory=list[Need])
    is_whole: bool = False
    """Is all of it needed, or more than can be told?"""

    @property
    def needed_bytes(self) -> int:
        return sum({id(need.value): need.size_bytes for need in self.needs}.values())

    @property
    def is_wasteful(self) -> bool:
        return bool(self.needs) and not self.is_whole and FEW * self.needed_bytes <= self.value.size_bytes


def stacks_of(body: Body, scan: TracedEquation, indexed: Collection[int] = ()) -> list[Stack]:
    """The stacked outputs of one scan of a program, with what is read of each.

    Args:
        indexed: positions of the program's outputs of which its caller takes single rows alone.
    """
    carried = len(scan.split_operands(scan.reads).carry)
    stacks = [Stack(i, value) for i, value in enumerate(scan.makes) if i >= carried]
    follower = _Follower(scan, stacks)
    after = next(i for i, step in enumerate(body.program.steps) if step is scan) + 1
    for step in body.program.steps[after:]:
        follower.take(step)
    for i, value in enumerate(body.program.outputs):
        if i not in indexed or not follower.index(value):
            follower.end(value, None)
    return stacks


class _Rows(NamedTuple):
    """A value with a row for each iteration."""

    axis: int
    stacks: tuple[Stack, ...]
    made_by: TracedEquation | None


class _Follower:
    """Takes the steps behind the loop one by one."""

    def __init__(self, scan: TracedEquation, stacks: list[Stack]) -> None:
        self.length: int = scan.equation.params["length"]
        self.rows = {id(stack.value): _Rows(0, (stack,), None) for stack in stacks}
        self.late = {id(value) for value in scan.makes} - set(self.rows)
        """Values that depend on the loop otherwise."""

    def take(self, step: TracedEquation) -> None:
        read = [self.rows[id(value)] for value in step.reads if id(value) in self.rows]
        is_late = any(id(value) in self.late for value in step.reads)
        if not read:
            self.late |= {id(value) for value in step.makes} if is_late else set()
            return
        axis = None if is_late else self._axis_after(step, read)
        kind = None if is_late or axis is not None else self._kind(step, read)
        if axis is not None:
            stacks = tuple({id(stack): stack for rows in read for stack in rows.stacks}.values())
            self.rows.update({id(value): _Rows(axis, stacks, step) for value in step.makes})
            return
        self.late |= {id(value) for value in step.makes}
        for value in step.reads:
            if kind is None:
                self.end(value, step)
            elif id(value) in self.rows:
                self._note(self.rows[id(value)], Need(kind, step, step.makes[0]))

    def end(self, value: TracedValue, step: TracedEquation | None) -> None:
        """All of this value is needed: of the stacks that is much, or something small of each row."""
        rows = self.rows.get(id(value))
        if rows is None:
            return
        for stack in rows.stacks:
            if FEW * value.size_bytes <= stack.value.size_bytes:
                stack.needs.append(Need("each", rows.made_by, value))
            else:
                stack.is_whole = True

    def index(self, value: TracedValue) -> bool:
        """A row of this value is needed, if it has one for each iteration."""
        rows = self.rows.get(id(value))
        if rows is None or rows.axis:
            return False
        self._note(rows, Need("indexed", rows.made_by, value))
        return True

    def _note(self, rows: _Rows, need: Need) -> None:
        for stack in rows.stacks:
            stack.needs.append(need)

    def _axis_after(self, step: TracedEquation, read: list[_Rows]) -> int | None:
        """Where the rows are in what a step makes row by row; None where it does something else."""
        if len(step.makes) != 1 or len({rows.axis for rows in read}) != 1:
            return None
        axis, params, made = read[0].axis, step.equation.params, step.makes[0]
        source = next(value for value in step.reads if id(value) in self.rows)
        if step.name in ELEMENTWISE:
            return axis if made.shape[axis : axis + 1] == (self.length,) else None
        if step.name in REDUCTIONS:
            return _axis_without(axis, params["axes"])
        if step.name == "squeeze":
            return _axis_without(axis, params["dimensions"])
        if step.name == "broadcast_in_dim":
            return params["broadcast_dimensions"][axis]
        if step.name == "transpose":
            return tuple(params["permutation"]).index(axis)
        if step.name == "reshape":
            return _axis_of_reshape(source.shape, made.shape, axis)
        if step.name in ("slice", "dynamic_slice"):
            return axis if made.shape[axis] == self.length else None
        return None

    def _kind(self, step: TracedEquation, read: list[_Rows]) -> str | None:
        """Of a step that takes some rows or reduces all of them; None of any other."""
        if step.name in ("slice", "dynamic_slice", "gather"):
            # What chooses the rows is known before the loop, for no other operand is of the loop.
            is_chosen = len(read) == 1 and id(step.reads[0]) in self.rows
            return "rows" if is_chosen and FEW * step.makes[0].size_bytes <= step.reads[0].size_bytes else None
        return "total" if step.name in ACCUMULATED else None


def _axis_without(axis: int, gone: tuple[int, ...]) -> int | None:
    return None if axis in gone else axis - sum(1 for one in gone if one < axis)


def _axis_of_reshape(before: tuple[int, ...], after: tuple[int, ...], axis: int) -> int | None:
    """Where an axis is after a reshape that keeps it; None where it is merged with others."""
    ahead = math.prod(before[:axis])
    fits = (i for i, n in enumerate(after) if n == before[axis] and math.prod(after[:i]) == ahead)
    return next(fits, None)


def scans(body: Body) -> Iterator[TracedEquation]:
    yield from (step for step in body.program.steps if step.name == "scan")
