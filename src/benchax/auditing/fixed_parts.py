"""Which part of a function's work depends only on arguments that are the same at each call, in operations.

Counted from shapes, as `work.py` does. What a loop computes of its constants alone counts once, for XLA takes it out of
loops (a product and a Cholesky factor in a scan of 1 and of 100 iterations take equally long on CPU, jax 0.10.2); what
it computes of the rows of a constant array counts in each iteration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from benchax.auditing.traced import TracedEquation, TracedProgram, flow
from benchax.auditing.work import bodies_of, operations

UNKNOWN_TRIPS = 100
"""Iterations that a loop of unknown length counts as: what varies may well be in it."""


class _Dependence(NamedTuple):
    """What a value depends on."""

    is_varying: bool
    """On an input that is not the same at each call."""
    fixed: frozenset[int] = frozenset()
    """On these that are; not followed of what varies anyway."""
    is_moving: bool = False
    """Does it differ from iteration to iteration of the loop that it is in?"""


@dataclass(frozen=True)
class Part:
    """What one equation does in a whole call."""

    step: TracedEquation
    operations: float
    fixed: frozenset[int]
    """The inputs that it depends on, where it depends on none but those that are the same at each call."""


def parts(closed: Any, fixed: frozenset[int]) -> list[Part]:
    """All equations, those in loops included; `fixed` are the positions of the inputs that stay the same."""
    program = flow(closed)
    states = [_Dependence(i not in fixed, frozenset((i,)) & fixed) for i in range(len(program.inputs))]
    return list(_parts(program, states, 1.0, 1.0))


def _parts(program: TracedProgram, states: Sequence[_Dependence], begun: float, times: float) -> Iterator[Part]:
    """Of a body that runs so many times, in a loop that begins so often."""
    known = {id(value): state for value, state in zip(program.inputs, states, strict=True)}
    for step in program.steps:
        reads = [known.get(id(value), _Dependence(False)) for value in step.reads]
        state = _join(reads)
        runs = times if state.is_moving else begun
        known |= dict.fromkeys((id(value) for value in step.makes), state)
        if step.name in ("scan", "while"):
            yield from _parts_of_loop(step, reads, runs)
        else:
            yield Part(step, operations(step) * runs, state.fixed)


def _parts_of_loop(step: TracedEquation, reads: list[_Dependence], runs: float) -> Iterator[Part]:
    params, all_of_it = step.equation.params, _join(reads)
    is_scan = step.name == "scan"
    body = flow(params["jaxpr" if is_scan else "body_jaxpr"])
    consts, carry, xs = step.split_operands(reads)
    inside = [
        *(one._replace(is_moving=False) for one in consts),
        *([all_of_it._replace(is_moving=True)] * len(carry)),
        *(one._replace(is_moving=True) for one in xs),
    ]
    trips = params["length"] if is_scan else UNKNOWN_TRIPS if all_of_it.is_varying else 1
    yield from _parts(body, inside, runs, runs * trips)


def _join(states: Sequence[_Dependence]) -> _Dependence:
    is_varying = any(one.is_varying for one in states)
    fixed = frozenset[int]().union(*(one.fixed for one in states)) if not is_varying else frozenset[int]()
    return _Dependence(is_varying, fixed, any(one.is_moving for one in states))


def has_open_loop(closed: Any) -> bool:
    """Is there a loop whose length is decided while it runs?"""
    return any(
        step.name == "while" or any(has_open_loop(inside) for inside in bodies_of(step.equation.params))
        for step in flow(closed).steps
    )
