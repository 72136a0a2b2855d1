"""Finds loops that compute a whole sequence in each turn, to use one position of it and write the next."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import jax.numpy as jnp

from benchax.auditing.dataflow import Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import rule
from benchax.auditing.syntax import where_of
from benchax.auditing.tolerance_loops import constants_as_inputs
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr, first_of_each_line
from benchax.auditing.work import count_operations, elements
from benchax.results.audit import Finding
from benchax.units import count, percent

ADVICE = (
    "Go on from where the loop is: of a recurrent network carry its state, and advance it by one step in each turn; of "
    "attention keep keys and values of what is written (a cache), and compute those and the query of the new position "
    "alone; of a product take the row first, a[i] @ x."
)
LEAST_LENGTH = 16
LEAST_OPERATIONS = 1 << 18
"""Of one turn."""
LEAST_SHARE = 0.5
"""Of the operations of a turn."""
UPDATES = {"scatter": 2, "dynamic_update_slice": 1}
"""Operations that write a part of their first operand, and the position of that part."""
TAKES = ("dynamic_slice", "gather")


@rule(
    "recomputed-prefix", "does a loop that writes a sequence go on from where it is?", "warning", needs_trace_only=True
)
def recomputed_prefix(e: Evidence) -> Iterable[Finding]:
    loops = (body for body in bodies(constants_as_inputs(closed_jaxpr(e))) if body.is_loop)
    found = (one for body in loops for written in _written(body) for one in _positions(body, written))
    yield from (_finding(e, one) for one in first_of_each_line(found))


class _Written(NamedTuple):
    """What a loop carries, and writes at one position in each turn."""

    at: int
    """Among the inputs of the body."""
    length: int


class _Position(NamedTuple):
    """What is taken of a computed sequence at one position."""

    step: TracedEquation
    written: _Written
    operations: float
    """Of one turn, behind the sequence."""
    share: float
    """Of all of a turn."""


def _written(body: Body) -> Iterator[_Written]:
    for at, (given, output) in enumerate(body.carries, body.constants):
        step = body.maker(output)
        if step is None or step.name not in UPDATES or step.reads[0] is not given:
            continue
        part = elements(step.reads[UPDATES[step.name]])
        lengths = [n for n in given.shape if n >= LEAST_LENGTH and n * part == elements(given)]
        if lengths and _counters(body) & _indices(body, step, UPDATES[step.name]):
            yield _Written(at, lengths[0])


def _counters(body: Body) -> set[int]:
    """Whole numbers that may be another one in each turn, by their positions among the inputs."""
    later = enumerate(body.program.inputs[body.constants :], body.constants)
    return {at for at, value in later if not value.shape and value.is_of(jnp.integer)}


def _indices(body: Body, step: TracedEquation, of_part: int = 0) -> set[int]:
    """Inputs that decide where a step reads or writes."""
    given = [value for at, value in enumerate(step.reads) if at not in (0, of_part)]
    return {at for value in given for at in body.sources(value)}


def _positions(body: Body, written: _Written) -> Iterator[_Position]:
    total = count_operations(body.program.steps)
    for step in body.program.steps:
        if step.name not in TAKES or not _takes_one(step, written.length):
            continue
        if not _counters(body) & _indices(body, step) or written.at not in body.sources(step.reads[0]):
            continue
        operations = count_operations(_behind(body, step.reads[0], body.program.inputs[written.at]))
        if operations >= max(LEAST_OPERATIONS, LEAST_SHARE * total):
            yield _Position(step, written, operations, operations / total)


def _takes_one(step: TracedEquation, length: int) -> bool:
    """Of an axis as long as what is written, or one shorter or longer?"""
    whole, taken = step.reads[0], elements(step.makes[0])
    return any(abs(n - length) <= 1 and n * taken == elements(whole) for n in whole.shape)


def _behind(body: Body, value: TracedValue, source: TracedValue) -> list[TracedEquation]:
    """The steps on the ways from one value to another."""
    depends = {id(source)}
    for step in body.program.steps:
        if any(id(read) in depends for read in step.reads):
            depends |= {id(made) for made in step.makes}
    found, waiting = dict[int, TracedEquation](), [value]
    while waiting:
        step = body.maker(waiting.pop())
        if step is not None and id(step) not in found and any(id(made) in depends for made in step.makes):
            found[id(step)] = step
            waiting += step.reads
    return list(found.values())


def _finding(e: Evidence, one: _Position) -> Finding:
    step, written, operations, share = one
    return recomputed_prefix.finding(
        f"computes {written.length} positions in each turn of a loop, to use one",
        [
            (
                f"{step.reads[0].spec} is computed of all that was written, and one position taken of it{step.at}: "
                f"{count(operations)} operations of a turn ({percent(share)}), counted from the shapes"
            ),
            "the loop then writes one position; what was computed of the others is computed again in the next turn",
        ],
        ADVICE,
        where=where_of(step.line) or e.def_where,
    )
