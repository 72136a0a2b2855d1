"""Remarks about what is in the times besides the function, and what disturbed them.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from benchax.machine.noise import BUSY_SHARE, STEAL_SHARE
from benchax.measuring.remarks.evidence import RowEvidence
from benchax.measuring.remarks.of_calls import call_overhead
from benchax.measuring.timers.base import FRESH_COPIES
from benchax.model import Noise, Remark
from benchax.program.cost import INLINE_FLOPS
from benchax.units import count, percent, seconds, size

MAPPED_BYTES = 32 * 2**20
"""From here up glibc maps every allocation afresh: 20-44 GB/s became 1.6-2.7 GB/s for `x + 1` on CPU."""
COARSE_SHARE = 0.01
HANDOVER_LIMIT_S = 200e-6
UNEVEN = 1.5
"""The mean of calls in a row over the shortest call, above which the remark appears. If every third call has to wake a
thread, calls of 14 and 57 µs have a mean of 28."""


def recompiled(e: RowEvidence) -> Remark | None:
    return describe_recompiling(e.compiles_while_timed, "the function")


def describe_recompiling(programs: int, what: str) -> Remark | None:
    """None if no program was compiled while `what` was being timed."""
    if not programs:
        return None
    return Remark(
        "recompiled",
        "error",
        f"{programs} program{'s were' if programs > 1 else ' was'} compiled while {what} was being timed: the times "
        "contain compiling. The usual reason: a shape, dtype, static value or function object changes from call to "
        "call.",
    )


def not_steady(e: RowEvidence) -> Remark | None:
    if e.warmup.is_steady or len(e.warmup.windows_s) < 2:
        return None
    return Remark(
        "not-steady",
        "warning",
        f"still changing after {e.warmup.calls} warm-up calls ({e.warmup.compiles} of them compiled): the first "
        "samples may be slower than the last",
    )


def inline_limit(e: RowEvidence) -> Remark | None:
    """Not if another remark says already what a call costs."""
    wall = e.times.summaries.get("wall")
    if e.inline_flops is None or not _is_handed_over(e) or wall is None or wall.median_s > HANDOVER_LIMIT_S:
        return None
    if call_overhead(e.times):
        return None
    return Remark(
        "inline-limit",
        "info",
        f"XLA:CPU runs this program in its thread pool: it has {count(e.inline_flops, 'FLOP')}. Below {INLINE_FLOPS} "
        "FLOP, it runs on the calling thread, and a call costs less.",
    )


def page_faults(e: RowEvidence) -> Remark | None:
    biggest = max(e.output_bytes, e.memory.temp_bytes or 0)
    if e.platform != "cpu" or biggest < MAPPED_BYTES or not e.has_glibc:
        return None
    is_output = biggest == e.output_bytes
    what = "outputs" if is_output else "temporaries"
    advice = "; donating an input of that size avoids it" if is_output else ""
    return Remark(
        "page-faults",
        "warning",
        f"{what} of {size(biggest)}: arrays from {size(MAPPED_BYTES)} up are mapped and page-faulted anew in every "
        f"call on CPU, which can be most of the time{advice}",
    )


def loops_counted_once(e: RowEvidence) -> Remark | None:
    if not e.cost or not e.cost.has_loops or e.cost.flops is None:
        return None
    return Remark(
        "loop-counted-once",
        "info",
        "operations and bytes count the body of each scan, fori_loop or while_loop once, however often it runs",
    )


def busy(e: RowEvidence) -> Remark | None:
    return describe_busy(e.noise)


def describe_busy(noise: Noise) -> Remark | None:
    """None if the machine was idle, or its load is not known."""
    others, steal = noise.others_share or 0.0, noise.steal_share or 0.0
    parts = [f"other processes used {percent(others)} of the CPU"] if others > BUSY_SHARE else []
    parts += [f"the hypervisor took {percent(steal)}"] if steal > STEAL_SHARE else []
    if not parts:
        return None
    return Remark(
        "busy", "warning", f"the machine was busy meanwhile: {' and '.join(parts)}. benchax doctor says more."
    )


def coarse_clock(e: RowEvidence) -> Remark | None:
    for s in e.samples:
        sample = s.summary.median_s * s.iterations
        if s.resolution_s and 0 < sample < s.resolution_s / COARSE_SHARE:
            return Remark(
                "coarse-clock",
                "warning",
                f"the clock steps by {seconds(s.resolution_s)}, more than 1 % of a sample of {s.timer} "
                f"({seconds(sample)})",
            )
    return None


def uneven_calls(e: RowEvidence) -> Remark | None:
    """The evidence is the shortest single call among those before and between the samples."""
    wall, floor = e.times.summaries.get("wall"), e.stages.call_floor
    if not wall or not _is_handed_over(e) or wall.median_s > HANDOVER_LIMIT_S:
        return None
    shortest_s = min([e.warmup.least_s or wall.median_s, *(floor.call_s if floor else ())])
    if wall.median_s < UNEVEN * shortest_s:
        return None
    return Remark(
        "uneven-calls",
        "info",
        f"The shortest call took {seconds(shortest_s)}, wall ({seconds(wall.median_s)}) is a mean of calls. XLA:CPU "
        "dispatches each call to a thread pool, where some calls wait until a thread wakes.",
    )


def _is_handed_over(e: RowEvidence) -> bool:
    """Does each call go through XLA:CPU's thread pool?"""
    is_big = e.inline_flops is not None and e.inline_flops >= INLINE_FLOPS
    return e.platform == "cpu" and is_big and e.is_dispatch_async


def fresh_copies(e: RowEvidence) -> Remark | None:
    timers = [s.timer for s in e.samples if s.regime == FRESH_COPIES]
    if not timers:
        return None
    return Remark(
        "fresh-copies",
        "info",
        f"{' and '.join(timers)} gave each call fresh copies of the arguments that it donates, which no cache holds. "
        "The outputs can't be fed back: they don't fit, don't stay finite, or change how long the next call takes (a "
        "sort, a branch, an open loop). A loop that keeps its data in a cache takes less.",
    )
