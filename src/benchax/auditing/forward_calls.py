"""Functions that are the forward pass of another one, which the program calls with the same arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from benchax.auditing.forward_passes import key_of
from benchax.auditing.recorder.log import Log, by_key, most_common
from benchax.auditing.recorder.views import shared_uses
from benchax.program.index import FORWARD, index

LEAST_CALLS = 5
MOST_OF_IT = 0.8
"""Of the operations of a function that the derivative of the other does as well, at the same lines."""
EACH_STEP = 0.5, 1.2
"""Calls for one call of the other: fewer are looks at the metrics now and then, more are a search for a step."""


class ForwardCall(NamedTuple):
    """Calls of a function that does a part of the work of another one, with the same arrays."""

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
    ops, others = index(closed).body.ops, index(other).body
    first = {key_of(op) for op in others.ops if FORWARD in op.scope and not op.is_backward}
    if not any(op.is_backward for op in others.ops) or any(FORWARD in op.scope for op in ops):
        return None
    own = sum(op.work for op in ops)
    again = sum(op.work for op in ops if key_of(op) in first)
    return (own, own + others.work) if again >= MOST_OF_IT * own else None
