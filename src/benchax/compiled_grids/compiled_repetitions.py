"""One function's part of a compiled grid: a run that can be stopped, then repetitions between stamps, within a limit.

Between two repetitions, the program reads the limit and keeps stamps and outputs. None of this is inside the measured
interval. The interval begins after the start stamp and ends when all outputs are there. The cost of the stamps is
measured in place. A third stamp follows the end stamp, over the same arrays, with an empty branch between them.

If a function takes less time than a reading of the clock, a repetition is several runs in a row, as in `in_graph`. As
many empty runs follow the end stamp. The clock itself decides their number while the grid runs. After a reading that
is too short, the repetitions begin again, with more runs in each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from benchax.clock.selftest import tier
from benchax.clock.stamps import run_in_branch, stamp
from benchax.compiled_grids.compiled_functions import Leaves, Traced
from benchax.compiled_grids.compiled_result import Status
from benchax.measuring.timers.in_graph import SPAN_S

Run = Callable[[Leaves, Leaves, Any], tuple[Leaves, Any]]
"""(inputs, outputs of the run before, time of the stamp over them) -> (outputs, time), for the next stamp."""
MOST_RUNS = 1000
LONG = 4
"""The length of a repetition of several runs, in spans. Entering the loop of runs takes 0.1 µs more or less than
entering the empty one. For a run of 20 ns, this is 1 % in a loop of 200 runs, and 25 % in a loop of 20."""
FIRST_REPETITIONS = 16
"""Only one of the first repetitions begins them again. It would be very unlikely that all of them are preempted. And a
function that takes about as long as a reading should not lose all its measurements by one quick reading at the end."""


class CompiledCell(NamedTuple):
    """The results of one function, in the graph. Times are u32[2]."""

    outputs: Leaves
    """The outputs of the last run that finished."""
    stamps: Any
    """u32[repeats, 3, 2]: start, end, and a reading right after the end."""
    guard: Any
    """u32[2, 2]: start and end of the run that could be stopped; equal if there was no such run."""
    span: Any
    """u32[3, 2]: when its time began, when it was to end, when it did."""
    count: Any
    """i32: repetitions in `stamps`."""
    runs: Any
    """i32: of the function in each repetition."""
    status: Any


def skip_function(status: Status, repeats: int, blank: Leaves, now: Any) -> CompiledCell:
    stamps = jnp.zeros((repeats, 3, 2), jnp.uint32)
    none, once = jnp.int32(0), jnp.int32(1)
    return CompiledCell(blank, stamps, pair(now, now), jnp.stack([now] * 3), none, once, jnp.int32(status))


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
    count, runs, inputs, now, outputs, stamps = repeat_calls(traced, repeats, inputs, outputs, now, room)
    stopped = jnp.where(is_begun, Status.stopped, Status.not_run)
    status = jnp.where(is_expired, Status.timed_out, jnp.where(count == repeats, Status.ok, stopped))
    return inputs, CompiledCell(outputs, stamps, guard, jnp.stack([begun, until, now]), count, runs, status)


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
    """(count, runs, inputs, time, outputs, stamps) after all repetitions, or those that begin before `until`."""

    def run(inputs: Leaves, _: Leaves, time: Any) -> tuple[Leaves, Any]:
        # In a branch, for what does not depend on the inputs would be computed once for all runs otherwise.
        return run_in_branch(traced.run, inputs, time[1]), time

    def goes_on(state: Any) -> Any:
        i, _, _, now, _, _ = state
        return (i < repeats) & is_before(now, until)

    def once(state: Any) -> Any:
        i, runs, inputs, now, outputs, stamps = state
        (inputs, now), start = stamp((inputs, now))
        with jax.named_scope(traced.scope):
            end, outputs = chain_runs(run, runs, start, outputs, inputs)
        after, outputs = chain_runs(do_nothing, runs, end, outputs, inputs)
        stamps = lax.dynamic_update_index_in_dim(stamps, jnp.stack([start, end, after]), i, 0)
        i, runs = next_repetition(i, runs, minus(end, start))
        return i, runs, inputs, after, outputs, stamps

    # Made of `now`, so that it is made now and not while another function is timed; all of it is overwritten or masked.
    stamps = jnp.broadcast_to(now, (repeats, 3, 2))
    return lax.while_loop(goes_on, once, (jnp.int32(0), jnp.int32(1), inputs, now, outputs, stamps))


def chain_runs(run: Run, runs: Any, start: Any, outputs: Leaves, inputs: Leaves) -> tuple[Any, Leaves]:
    """(time, outputs) after `runs` runs, each of which waits for the stamp over the outputs of the one before."""

    def once(_: Any, state: Any) -> Any:
        time, outputs = state
        (outputs, _), time = stamp(run(inputs, outputs, time))
        return time, outputs

    return lax.fori_loop(0, runs, once, (start, outputs))


def do_nothing(inputs: Leaves, outputs: Leaves, time: Any) -> tuple[Leaves, Any]:
    """Does the steps around a run: a stamp over as many arrays, and a branch that is always taken."""
    return outputs, run_in_branch(lambda time: time, time, time[1])


def next_repetition(i: Any, runs: Any, took: Any) -> tuple[Any, Any]:
    """(number, runs) of the repetition after number `i`, which took u32[2]."""
    span_ns = round(SPAN_S[tier().name] * 1e9)
    enough_ns = jnp.where(runs > 1, LONG * span_ns, span_ns) // 2  # the first run of all is slower than others
    is_short = (took[1] == 0) & (took[0] < enough_ns) & (runs < MOST_RUNS) & (i < FIRST_REPETITIONS)
    more = jnp.minimum(runs.astype(jnp.uint32) * (LONG * span_ns) // jnp.maximum(took[0], 1) + 1, MOST_RUNS)
    return jnp.where(is_short, 0, i + 1), jnp.where(is_short, more.astype(jnp.int32), runs)


def pair(start: Any, end: Any) -> Any:
    return jnp.stack([start, end])


def is_before(a: Any, b: Any) -> Any:
    return (a[1] < b[1]) | ((a[1] == b[1]) & (a[0] < b[0]))


def minus(a: Any, b: Any) -> Any:
    """a - b, both u32[2]; b is not the later one."""
    borrow = (a[0] < b[0]).astype(jnp.uint32)
    return jnp.stack([a[0] - b[0], a[1] - b[1] - borrow])
