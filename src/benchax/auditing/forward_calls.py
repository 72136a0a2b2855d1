"""Functions that are the forward pass of another one, which the program calls with the same arrays."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from benchax.auditing.forward_passes import key_of
from benchax.auditing.shared_calls import SharedCalls
from benchax.program.index import FORWARD, index

LEAST_CALLS = 5
MOST_OF_IT = 0.8
"""Of the operations of a function that the derivative of the other does as well, at the same lines."""
EACH_STEP = 0.5, 1.2
"""Calls for one call of the other: fewer are looks at the metrics now and then, more are a search for a step."""


def second_forwards(shared: SharedCalls) -> list[dict[str, Any]]:
    """In plain data, dearest first."""
    return sorted(_find(shared), key=lambda one: -one["operations"])


def _find(shared: SharedCalls) -> Iterator[dict[str, Any]]:
    for use, n in shared.found.items():
        # Where both are given the same, nobody knows yet which is a part of the other.
        for fun, other in [(use.fun, use.other), (use.other, use.fun)][: 1 if use.is_after else 2]:
            least, most = (share * shared.calls[other] for share in EACH_STEP)
            if n < max(LEAST_CALLS, least) or shared.calls[fun] > most:
                continue
            (_, name, closed), (_, other_name, derivative) = shared.programs[fun], shared.programs[other]
            compared = _compare(closed, derivative)
            if compared is not None:
                yield {
                    "function": name, "other": other_name, "where": shared.lines[fun],
                    "other_where": shared.lines[other], "count": n, "is_after": use.is_after,
                    "operations": compared[0], "total": compared[1],
                }  # fmt: skip


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
