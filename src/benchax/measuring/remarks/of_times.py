"""Remarks about the times: what is in them beside the function, where they contradict one another, what disturbed them.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from itertools import permutations

from benchax.machine.noise import BUSY_SHARE, STEAL_SHARE
from benchax.measuring.remarks.evidence import RowEvidence
from benchax.measuring.timers.feedback import FRESH_COPIES
from benchax.model import Noise, Remark
from benchax.program.cost import INLINE_FLOPS
from benchax.units import count, percent, seconds, size

MAPPED_BYTES = 32 * 2**20
"""From here up glibc maps every allocation afresh: 20-44 GB/s became 1.6-2.7 GB/s for `x + 1` on CPU."""
DISPATCH_SHARE = 0.5
SHARE_APART = 0.05
"""Shares by medians and by least readings that differ by less are one."""
COARSE_SHARE = 0.01
HANDOVER_LIMIT_S = 200e-6
SLOPE_LIMIT_S = 1e-3
CONTRADICTION = 1.1
PARTS_APART = 1.1
"""A call over its known parts, from where the rest is worth a word: the 1,338 operations of `blackjax.nuts` take
24 µs to start, of a call of 77."""
PARTS_APART_WITHOUT_FLOOR = 1.5
"""Where the cost of calling, some 10 µs, is in the rest."""
PARTS_FAR_APART = 3
APART = 1.05
APART_REASONS = {
    "loop": "a reading of loop is a difference of two, which holds every preemption",
    "device": "threads that share the work sleep between the calls that device records, and are awake in a repetition",
}
"""By timer: of two that disagree, one is among these."""
UNEVEN = 1.5
"""The mean of calls in a row over the shortest call, from where it is worth a word: with a thread to wake in every
third call, calls of 14 and 57 µs have a mean of 28."""


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


def dispatch_bound(e: RowEvidence) -> Remark | None:
    """By the floor, in turns with calls of the function: medians taken apart differ by what the machine did."""
    floor = e.stages.call_floor
    if not floor or floor.share < DISPATCH_SHARE:
        return None
    each, call, of = floor.median_s, floor.median_call_s, "your"
    if floor.share < each / call - SHARE_APART:  # then the share is that of the least readings
        each, call, of = min(floor.elapsed_s), min(floor.call_s), "your shortest,"
    shown = seconds(call, 2)
    share = f"{percent(floor.share)} of {of} {shown}" if floor.share < 1 else f"as long as yours ({shown})"
    return Remark(
        "dispatch-bound",
        "warning",
        f"a call that does next to nothing takes {seconds(each, 2)} here; that is {share}. Inside a bigger program, or "
        "with more work in each call, this is not paid each time",
    )


def resident_far_below_wall(e: RowEvidence) -> Remark | None:
    """By the least of the calls, which load does not raise; of short ones only where it is known what calling costs,
    or that a wrapper's Python is part of it."""
    wall = e.summary("wall")
    name, resident = next(((n, s) for n in ("in_graph", "loop", "device") if (s := e.summary(n))), ("", None))
    floor = e.stages.call_floor
    least_s = (wall.min_s or wall.median_s) if wall else 0.0
    if not wall or not resident or (least_s < SLOPE_LIMIT_S and not floor and not _has_wrapper(e)):
        return None
    floor_s = min(floor.elapsed_s) if floor else 0.0
    parts = least_s / (resident.median_s + floor_s)
    if parts < (PARTS_APART if floor else PARTS_APART_WITHOUT_FLOOR):
        return None
    where = "the device runs it for" if name == "device" else "repeated inside one program it takes"
    nothing = f", and a call that does next to nothing at least {seconds(floor_s, 2)}" if floor else ""
    return Remark(
        "resident-far-below-wall",
        "warning" if parts > PARTS_FAR_APART else "info",
        f"{where} {seconds(resident.median_s)} ({name}){nothing}; no call took less than "
        f"{seconds(least_s)}. Reasons that are known: {_wrapper(e)}the start of a program of many operations, "
        "outputs, which only a call allocates anew, and work that a call shares among threads and waits for. A call "
        "costs what wall says",
    )


def _wrapper(e: RowEvidence) -> str:
    """A wrapper's own Python can be most of a call: flax.nnx.jit takes 0.2 to 3 ms for a small model and Adam, and
    equinox.filter_jit 30 µs for a layer of 15."""
    return "the Python of the wrapper around it, " if _has_wrapper(e) else ""


def _has_wrapper(e: RowEvidence) -> bool:
    return e.inputs.is_stateful or e.program.kind == "wrapper"


def more_than_a_call(e: RowEvidence) -> Remark | None:
    """Part of a call cannot take longer than the call: then it was another machine, or another program."""
    wall = e.summary("wall")
    if not wall:
        return None
    parts = [(s.timer, s.summary) for s in e.samples if s.timer in ("device", "in_graph", "loop")]
    above = [
        (name, part)
        for name, part in parts
        if (part.low_s or part.median_s) > CONTRADICTION * (wall.high_s or wall.median_s)
    ]
    if not above:
        return None
    listed = " and ".join(f"{name} reads {seconds(part.median_s)}" for name, part in above)
    return Remark(
        "more-than-a-call",
        "warning",
        f"{listed}, which is a part of the {seconds(wall.median_s)} of a whole call. Either the machine changed its "
        "speed between the timers (threads that share a core at times, or a neighbour), or XLA compiles the function "
        "in another way inside their programs; these readings do not tell which. Measure again",
    )


def one_at_a_time(e: RowEvidence) -> Remark | None:
    """Recorded runs are calls with Python in between; repetitions of the other timers follow without a pause."""
    device = e.summary("device")
    name, resident = next(((n, s) for n in ("in_graph", "loop") if (s := e.summary(n))), ("", None))
    if not device or not resident or (device.low_s or device.median_s) < APART * resident.median_s:
        return None
    return Remark(
        "one-at-a-time",
        "info",
        f"device reads {seconds(device.median_s)}, of runs that are recorded one at a time, with Python in between; "
        f"repeated without a pause the function takes {seconds(resident.median_s)} ({name})",
    )


def inline_limit(e: RowEvidence) -> Remark | None:
    wall = e.summary("wall")
    if e.inline_flops is None or not _is_handed_over(e) or wall is None or wall.median_s > HANDOVER_LIMIT_S:
        return None
    floor = e.stages.call_floor
    cost = f": a call that does next to nothing there takes {seconds(floor.median_s, 2)} here" if floor else ""
    return Remark(
        "inline-limit",
        "info",
        f"{count(e.inline_flops, 'FLOP')} is at or above XLA:CPU's limit of {INLINE_FLOPS}, so each call is "
        f"dispatched to the thread pool{cost}; below the limit it would run on the calling thread",
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


def timers_apart(e: RowEvidence) -> Remark | None:
    """Timers of the same work whose intervals do not meet. Where `device` reads more, `one_at_a_time` says so."""
    found = [(s.timer, s.summary) for s in e.samples if s.timer in ("in_graph", "loop", "device")]
    apart = [
        ((low, high), f"{low} reads {seconds(below.median_s)} where {high} reads {seconds(above.median_s)}")
        for (low, below), (high, above) in permutations(found, 2)
        if high != "device" and APART * (below.high_s or below.median_s) < (above.low_s or above.median_s)
    ]
    if not apart:
        return None
    timers = {timer for pair, _ in apart for timer in pair}
    reasons = [why for timer, why in APART_REASONS.items() if timer in timers]
    return Remark(
        "timers-apart",
        "warning",
        f"{' and '.join(text for _, text in apart)}, of the same work. Known reasons: the machine changes its pace "
        f"between timers; {'; '.join(reasons)}. Measure again, and believe what repeats",
    )


def uneven_calls(e: RowEvidence) -> Remark | None:
    """By the shortest single call, of those that were made beside the samples."""
    wall, floor = e.summary("wall"), e.stages.call_floor
    if not wall or not _is_handed_over(e) or wall.median_s > HANDOVER_LIMIT_S:
        return None
    shortest_s = min([e.warmup.least_s or wall.median_s, *(floor.call_s if floor else ())])
    if wall.median_s < UNEVEN * shortest_s:
        return None
    return Remark(
        "uneven-calls",
        "info",
        f"wall reads {seconds(wall.median_s)}, and the shortest call took {seconds(shortest_s)}. XLA:CPU "
        "dispatches each call to a thread pool, where some calls wait until a thread wakes. A reading of wall is the "
        "mean of its calls, as that of a loop is",
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
        f"{' and '.join(timers)} gave each call fresh copies of the arguments that it donates, which no cache "
        "holds. Its outputs cannot be fed back: they do not fit, do not stay finite, or change how long the next call "
        "takes (a sort, a branch, an open loop). A loop that keeps its data in a cache takes less",
    )


def no_interval(e: RowEvidence) -> Remark | None:
    """Of one process: several have an interval between them."""
    timers = [s.timer for s in e.samples if s.summary.low_s is None]
    if not timers or e.processes > 1:
        return None
    return Remark(
        "no-interval",
        "warning",
        f"the median by {' and '.join(timers)} has no interval: its readings are too few, or the machine kept changing "
        "its pace. Sample for longer (--max-time), or in several processes (--processes)",
    )
