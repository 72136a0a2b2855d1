"""One function's part of a compiled grid: a run that can be stopped, then repetitions between stamps, within a limit.

Between two repetitions are the reading of the limit and the keeping of stamps and outputs; none of it is inside the
measured interval, which begins when the start stamp has been taken and ends when all outputs are there. What the
stamps themselves cost is measured in place: a third one follows the end stamp, over the same arrays, with a branch
between them in which nothing is done.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from benchax.clock.stamps import run_in_branch, stamp
from benchax.grids.compiled_functions import Leaves, Traced
from benchax.grids.compiled_result import Status


class CompiledCell(NamedTuple):
    """What one function leaves behind, in the graph. Times are u32[2]."""

    outputs: Leaves
    """Of the last run that finished."""
    stamps: Any
    """u32[repeats, 3, 2]: start, end, and a reading right after the end."""
    guard: Any
    """u32[2, 2]: start and end of the run that could be stopped; equal where there was none."""
    span: Any
    """u32[3, 2]: when its time began, when it was to end, when it did."""
    count: Any
    """i32: repetitions in `stamps`."""
    status: Any


def skip_function(status: Status, repeats: int, blank: Leaves, now: Any) -> CompiledCell:
    stamps = jnp.zeros((repeats, 3, 2), jnp.uint32)
    return CompiledCell(blank, stamps, pair(now, now), jnp.stack([now] * 3), jnp.int32(0), jnp.int32(status))


def measure_function(
    traced: Traced, repeats: int, inputs: Leaves, blank: Leaves, now: Any, until: Any
) -> tuple[Leaves, CompiledCell]:
    """(inputs, pinned behind it; what it left behind).

    Args:
        blank: the outputs, if no run finishes.
        now: when its time begins.
        until: when its time ends.
    """
    begun, is_begun = now, is_before(now, until)
    guard, outputs, is_expired, room = pair(now, now), blank, jnp.bool_(False), until
    if traced.guard:
        guard, outputs, is_expired = call_guarded(traced, inputs, blank, now, until)
        now = guard[1]
        # Without room for a second run like the first, the limit would be passed.
        room = jnp.where(is_begun & ~is_expired, minus(until, minus(guard[1], guard[0])), jnp.uint32(0))
    if traced.refused:  # its outputs are wanted all the same
        cell = skip_function(traced.refused, repeats, outputs, now)
        status = jnp.where(is_expired, Status.timed_out, jnp.where(is_begun, traced.refused, Status.not_run))
        return inputs, cell._replace(guard=guard, span=jnp.stack([begun, until, now]), status=status)
    count, inputs, now, outputs, stamps = repeat_calls(traced, repeats, inputs, outputs, now, room)
    stopped = jnp.where(is_begun, Status.stopped, Status.not_run)
    status = jnp.where(is_expired, Status.timed_out, jnp.where(count == repeats, Status.ok, stopped))
    return inputs, CompiledCell(outputs, stamps, guard, jnp.stack([begun, until, now]), count, status)


def call_guarded(traced: Traced, inputs: Leaves, blank: Leaves, now: Any, until: Any) -> tuple[Any, Leaves, Any]:
    """(its start and end, outputs, was it stopped inside). Does nothing where the time is up already."""

    def run(inputs: Leaves) -> tuple[Any, Leaves, Any]:
        inputs, start = stamp(inputs)
        outputs, is_expired = traced.guard(until, inputs)  # type: ignore[misc]
        (outputs, is_expired, start), end = stamp((outputs, is_expired, start))
        return pair(start, end), [jnp.where(is_expired, b, o) for b, o in zip(blank, outputs, strict=True)], is_expired

    def skip(_: Leaves) -> tuple[Any, Leaves, Any]:
        return pair(now, now), blank, jnp.bool_(False)

    return lax.cond(is_before(now, until), run, skip, inputs)


def repeat_calls(traced: Traced, repeats: int, inputs: Leaves, outputs: Leaves, now: Any, until: Any) -> Any:
    """(count, inputs, time, outputs, stamps) after all repetitions, or those that begin before `until`."""

    def goes_on(state: Any) -> Any:
        i, _, now, _, _ = state
        return (i < repeats) & is_before(now, until)

    def once(state: Any) -> Any:
        i, inputs, now, _, stamps = state
        (inputs, now), start = stamp((inputs, now))
        # In a branch, for what does not depend on the inputs would be computed once for all repetitions otherwise.
        (outputs, start), end = stamp((run_in_branch(traced.run, inputs, start[1]), start))
        (outputs, end), after = stamp((outputs, run_in_branch(lambda end: end, end, end[1])))
        row = jnp.stack([start, end, after])
        return i + 1, inputs, after, outputs, lax.dynamic_update_index_in_dim(stamps, row, i, 0)

    # Made of `now`, so that it is made now and not while another function is timed; all of it is overwritten or masked.
    stamps = jnp.broadcast_to(now, (repeats, 3, 2))
    return lax.while_loop(goes_on, once, (jnp.int32(0), inputs, now, outputs, stamps))


def pair(start: Any, end: Any) -> Any:
    return jnp.stack([start, end])


def is_before(a: Any, b: Any) -> Any:
    return (a[1] < b[1]) | ((a[1] == b[1]) & (a[0] < b[0]))


def minus(a: Any, b: Any) -> Any:
    """a - b, both u32[2]; b is not the later one."""
    borrow = (a[0] < b[0]).astype(jnp.uint32)
    return jnp.stack([a[0] - b[0], a[1] - b[1] - borrow])
