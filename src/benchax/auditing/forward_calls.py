"""Functions that are the forward pass of another one, which the program calls with the same arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchax.auditing.dataflow import GRADIENT
from benchax.auditing.derivatives import DERIVATIVE
from benchax.auditing.forward_passes import key_of
from benchax.auditing.recorder.log import Log, by_key, most_common
from benchax.auditing.recorder.views import shared_uses
from benchax.auditing.traced import flow
from benchax.auditing.work import count_operations

LEAST_CALLS = 5
MOST_OF_IT = 0.8
"""Of the operations of a function that the derivative of the other does as well, at the same lines."""
EACH_STEP = 0.5, 1.2
"""Calls for one call of the other: fewer are looks at the metrics now and then, more are a search for a step."""


class ForwardCall(NamedTuple):
    """Calls of a function that does a part of what another one does, of the same arrays."""

    name: str
    other: str
    where: str
    other_where: str
    count: int
    is_after: bool
    """With results of the other among its arguments."""
    operations: float
    total: float
    """Operations of both."""


def second_forwards(log: Log, programs: Mapping[int, Any]) -> list[ForwardCall]:
    """The most operations first.

    Args:
        programs: the closed jaxpr of each function, by its number.
    """
    return sorted(_find(log, programs), key=lambda one: -one.operations)


def _find(log: Log, programs: Mapping[int, Any]) -> Iterator[ForwardCall]:
    calls = by_key(log.of("call"), "function")
    for use, events in shared_uses(log, programs).items():
        mine, others = (calls[number,] for number in (use.function, use.other))
        least, most = (share * len(others) for share in EACH_STEP)
        if len(events) < max(LEAST_CALLS, least) or len(mine) > most:
            continue
        compared = _compare(programs[use.function], programs[use.other])
        if compared is not None:
            here, there = (most_common([event.where for event in one]) for one in (mine, others))
            own, total = compared
            yield ForwardCall(mine[0].by, others[0].by, here, there, len(events), use.is_after, own, total)


def _compare(closed: Any, other: Any) -> tuple[float, float] | None:
    """Operations of the first, and of both together; None where it is not the forward pass of the other, or makes more
    than numbers: what it makes may well be needed before the other is called, as what a policy does."""
    if any(math.prod(one.shape) > 1 for one in closed.out_avals):
        return None
    steps, others = flow(closed).steps, flow(other).steps
    first = {key_of(step) for step in others if DERIVATIVE in step.scope and GRADIENT not in step.scope}
    if not any(GRADIENT in step.scope for step in others) or any(DERIVATIVE in step.scope for step in steps):
        return None
    own = count_operations(steps)
    again = count_operations(step for step in steps if key_of(step) in first)
    return (own, own + count_operations(others)) if again >= MOST_OF_IT * own else None
