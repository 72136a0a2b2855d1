"""Remarks about what is in the times besides the function, and what disturbed them.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from benchax.machine.noise import BUSY_SHARE, STEAL_SHARE
from benchax.measuring.remarks.evidence import RowEvidence
from benchax.measuring.remarks.of_calls import call_overhead
from benchax.model import Noise, Remark
from benchax.program.cost import INLINE_FLOPS
from benchax.units import count, percent, seconds, size

MAPPED_BYTES = 32 * 2**20
"""From here up glibc maps every allocation afresh: 20-44 GB/s became 1.6-2.7 GB/s for `x + 1` on CPU."""
COARSE_SHARE = 0.01
HANDOVER_LIMIT_S = 200e-6


def recompiled(e: RowEvidence) -> Remark | None:
    return describe_recompiling(e.compiles_while_timed, "the function")


def describe_recompiling(programs: int, what: str) -> Remark | None:
    """None where no program was compiled while `what` was being timed."""
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
    if e.platform != "cpu" or e.inline_flops is None or wall is None or wall.median_s > HANDOVER_LIMIT_S:
        return None
    if e.inline_flops < INLINE_FLOPS or not e.is_dispatch_async or call_overhead(e.times):
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
    """None where the machine was idle, or nobody knows."""
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
