"""Buffers that a loop hands from step to step, moved by some rows as wholes to make room for new ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from benchax.auditing.dataflow import Body
from benchax.auditing.traced import TracedEquation, TracedValue
from benchax.auditing.work import operations

FEW = 8
"""New rows, and those that a step reads, are one in so many at most."""
READS = ("slice", "dynamic_slice", "gather")
WRITES = ("scatter", "dynamic_update_slice")


class Shift(NamedTuple):
    """One buffer, along one axis."""

    step: TracedEquation
    """What puts it together anew: a concatenation."""
    buffer: TracedValue
    axis: int
    others: float
    """Operations of what else the body does."""


def shifts(body: Body) -> Iterator[Shift]:
    """Those of a loop's carry of which nothing else reads more than a few rows."""
    for old, new in body.carries if body.is_loop else ():
        found = _read(body, old, new) if old.shape == new.shape and old.shape else None
        if found is not None:
            own = {id(step) for step in found}
            others = sum(operations(step) for step in body.program.steps if id(step) not in own)
            yield Shift(found[0], old, found[0].equation.params["dimension"], others)


def _read(body: Body, old: TracedValue, new: TracedValue) -> list[TracedEquation] | None:
    """The steps that make the new one of the old one, the concatenation first; None where it is no shift."""
    writes: list[TracedEquation] = []
    value = new
    while (
        (step := body.maker(value)) is not None
        and step.name in WRITES
        and _is_small(step.reads[-1 if step.name == "scatter" else 1], old)
    ):
        writes.append(step)
        value = step.reads[0]
    if step is None or step.name != "concatenate":
        return None
    axis = step.equation.params["dimension"]
    parts = [body.maker(part) for part in step.reads]
    moved = next((part for part in parts if part is not None and _is_most(part, old, axis)), None)
    if moved is None or body.uses[id(moved.makes[0])] != 1 or not _moves(step, moved, axis):
        return None
    own = [step, moved, *writes]
    values = (old, step.makes[0], *(write.makes[0] for write in writes))
    is_little = all(_reads_few(body, one, own, old) for one in values) and body.uses[id(new)] == 1 + len(
        body.readers(new)
    )
    return own + [part for part in parts if part is not None and part is not moved] if is_little else None


def _is_most(part: TracedEquation, old: TracedValue, axis: int) -> bool:
    """Is it a slice of nearly all rows, and of whole rows?"""
    if part.name != "slice" or part.reads[0] is not old:
        return False
    made, n = part.makes[0].shape, old.shape[axis]
    rest = all(made[i] == old.shape[i] for i in range(len(made)) if i != axis)
    return (
        rest and n > made[axis] and FEW * (n - made[axis]) <= n and set(part.equation.params["strides"] or (1,)) == {1}
    )


def _moves(step: TracedEquation, moved: TracedEquation, axis: int) -> bool:
    """Do its rows end where they were not?"""
    before = 0
    for part in step.reads:
        if part is moved.makes[0]:
            return before != moved.equation.params["start_indices"][axis]
        before += part.shape[axis]
    return False


def _reads_few(body: Body, value: TracedValue, own: list[TracedEquation], old: TracedValue) -> bool:
    readers = [step for step in body.readers(value) if all(step is not one for one in own)]
    return all(step.name in READS and step.reads[0] is value and _is_small(step.makes[0], old) for step in readers)


def _is_small(value: TracedValue, old: TracedValue) -> bool:
    return FEW * value.size_bytes <= old.size_bytes
