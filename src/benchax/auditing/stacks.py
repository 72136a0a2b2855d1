"""The use of the outputs that a scan stacks: is the stack read as a whole, or reduced, or are a few rows taken?

Each value after the loop is one of three kinds. The first has a row for each iteration. It is made only from that row
of the stacks and from values known before the loop (so that the body could make it). The second depends on the loop in
another way (its carry, several rows). The third does not depend on it.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import NamedTuple

from benchax.program.index import ELEMENTWISE, TracedOp, Value

FEW = 8
"""At most one byte in eight of a stack is needed."""
ACCUMULATED = ("reduce_sum", "reduce_max", "reduce_min", "reduce_prod", "reduce_and", "reduce_or")
"""Reductions that a carry can hold from step to step."""
REDUCTIONS = (*ACCUMULATED, "argmax", "argmin")


class Need(NamedTuple):
    """The part of a stack that is read, in the end."""

    kind: str
    """"rows": some of them; "total": a reduction over them; "each": something small of each; "indexed": a row, which
    the caller takes."""
    op: TracedOp | None
    """The operation that makes it: a slice, a reduction; None if the function returns it."""
    value: Value

    @property
    def size_bytes(self) -> int:
        return self.value.size_bytes // (self.value.shape[0] if self.kind == "indexed" else 1)


@dataclass
class Stack:
    """One output of a scan that has a row for each iteration."""

    value: Value
    needs: list[Need] = field(default_factory=list[Need])
    is_whole: bool = False
    """Is all of it needed, or more than is known?"""

    @property
    def needed_bytes(self) -> int:
        return sum({need.value: need.size_bytes for need in self.needs}.values())

    @property
    def is_wasteful(self) -> bool:
        return bool(self.needs) and not self.is_whole and FEW * self.needed_bytes <= self.value.size_bytes


class _Rows(NamedTuple):
    """A value with a row for each iteration."""

    axis: int
    stacks: tuple[Stack, ...]
    made_by: TracedOp | None


def stacks_of(scan: TracedOp, indexed: Collection[int] = ()) -> list[Stack]:
    """The stacked outputs of a scan, with what is read of each.

    Args:
        indexed: positions of those outputs of its body whose single rows alone the caller takes.
    """
    body, carried = scan.body, len(scan.bodies[0].carries)
    stacks = [Stack(value) for value in scan.makes[carried:]]
    rows = {stack.value: _Rows(0, (stack,), None) for stack in stacks}
    late = set(scan.makes[:carried])
    """Values that depend on the loop otherwise."""

    def end(value: Value) -> None:
        """All of this value is needed: much of the stacks, or something small of each row."""
        one = rows.get(value)
        for stack in one.stacks if one is not None else ():
            if one is not None and FEW * value.size_bytes <= stack.value.size_bytes:
                stack.needs.append(Need("each", one.made_by, value))
            else:
                stack.is_whole = True

    for op in body.ops[body.ops.index(scan) + 1 :]:
        read = [value for value in op.reads if value in rows]
        is_late = bool(late.intersection(op.reads))
        axis = _axis_after(op, read[0], rows, scan.params["length"]) if read and not is_late else None
        if axis is not None:
            every = {id(stack): stack for value in read for stack in rows[value].stacks}
            rows.update(dict.fromkeys(op.makes, _Rows(axis, tuple(every.values()), op)))
            continue
        late.update(op.makes if read or is_late else ())
        kind = None if is_late else _kind(op, read)
        for value in read:
            if kind is None:
                end(value)
            else:
                for stack in rows[value].stacks:
                    stack.needs.append(Need(kind, op, op.makes[0]))
    for i, value in enumerate(body.outputs):
        one = rows.get(value)
        if i in indexed and one is not None and not one.axis:
            for stack in one.stacks:
                stack.needs.append(Need("indexed", one.made_by, value))
        else:
            end(value)
    return stacks


def _axis_after(op: TracedOp, source: Value, rows: dict[Value, _Rows], length: int) -> int | None:
    """Where the rows are in what an operation makes row by row; None if it does something else."""
    axes = {rows[value].axis for value in op.reads if value in rows}
    if len(op.makes) != 1 or len(axes) != 1:
        return None
    (axis,), params, made = axes, op.params, op.makes[0]
    match op.name:
        case name if name in ELEMENTWISE:
            return axis if made.shape[axis : axis + 1] == (length,) else None
        case name if name in REDUCTIONS or name == "squeeze":
            gone = params["dimensions" if name == "squeeze" else "axes"]
            return None if axis in gone else axis - sum(1 for one in gone if one < axis)
        case "broadcast_in_dim":
            return params["broadcast_dimensions"][axis]
        case "transpose":
            return tuple(params["permutation"]).index(axis)
        case "reshape":  # None if the axis is merged with others
            ahead = math.prod(source.shape[:axis])
            fits = (i for i, n in enumerate(made.shape) if n == length and math.prod(made.shape[:i]) == ahead)
            return next(fits, None)
        case "slice" | "dynamic_slice":
            return axis if made.shape[axis] == length else None
    return None


def _kind(op: TracedOp, read: list[Value]) -> str | None:
    """The need of an operation that takes some rows or reduces all of them; None for any other."""
    if op.name in ("slice", "dynamic_slice", "gather"):
        # What chooses the rows is known before the loop, for no other operand is of the loop.
        is_chosen = read == [op.reads[0]] and FEW * op.makes[0].size_bytes <= op.reads[0].size_bytes
        return "rows" if is_chosen else None
    return "total" if op.name in ACCUMULATED else None
