"""Remarks that compare the times of one row: what a call costs besides its work, and where the times contradict.

They use the numbers that the row shows, and so they are made again when further processes have changed these (`renew`).

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations

from benchax.model import CallFloor, Measurement, Remark
from benchax.stats.summary import Summary
from benchax.units import seconds

CODES = (
    "dispatch-bound", "resident-far-below-wall", "more-than-a-call", "one-at-a-time", "timers-apart", "no-interval",
)  # fmt: skip
"""The codes of the remarks that are made here."""
DISPATCH_SHARE = 0.5
CONTRADICTION = 1.1
PARTS_APART = 1.1
"""A call over its known parts, from where the rest is worth a word: the 1,338 operations of `blackjax.nuts` take
24 µs to start, of a call of 77."""
PARTS_APART_WITHOUT_FLOOR = 1.5
LARGEST_FLOOR_S = 100e-6
"""The floor of most calls is below this; used if it was not measured."""
PARTS_FAR_APART = 3
APART = 1.05
APART_REASONS = {
    "loop": "a reading of loop is a difference of two, which holds every preemption",
    "device": "threads that share the work sleep between the calls that device records, and are awake in a repetition",
}
"""Timer → why it may disagree with another one."""


@dataclass(frozen=True)
class CallTimes:
    """The times that a row shows."""

    summaries: Mapping[str, Summary]
    """Seconds per call, by timer."""
    floor: CallFloor | None

    def first_of(self, *timers: str) -> tuple[str, Summary] | None:
        """The first of these timers that there is, with its summary."""
        return next(((name, self.summaries[name]) for name in timers if name in self.summaries), None)


def times_of(m: Measurement) -> CallTimes:
    return CallTimes({samples.timer: m.summary(samples.timer) for samples in m.samples}, m.stages.call_floor)


def compare(t: CallTimes) -> tuple[Remark | None, ...]:
    """All of these remarks; None for each that doesn't apply. Two that say the same never come together."""
    return call_overhead(t), more_than_a_call(t) or one_at_a_time(t), timers_apart(t), no_interval(t)


def call_overhead(t: CallTimes) -> Remark | None:
    return dispatch_bound(t) or resident_far_below_wall(t)


def dispatch_bound(t: CallTimes) -> Remark | None:
    """The evidence is the floor, measured alternately with calls of the function: medians taken one after the other
    differ by what the machine did."""
    wall, floor = t.summaries.get("wall"), t.floor
    if not wall or not floor or min(floor.share, floor.median_s / wall.median_s) < DISPATCH_SHARE:
        return None
    cost = f"an empty call takes {seconds(floor.median_s)} here (call floor), yours {seconds(wall.median_s)}"
    if floor.median_s >= wall.median_s:  # the two medians come from different moments
        each = f"call floor {seconds(floor.median_s)}, wall {seconds(wall.median_s)}"
        cost = f"an empty call takes as long as yours ({each})"
    return Remark(
        "dispatch-bound",
        "warning",
        f"Most of wall is the cost of a call: {cost}. Inside a bigger program, you don't pay that on each call.",
    )


def resident_far_below_wall(t: CallTimes) -> Remark | None:
    """The evidence is the least of the calls, which load does not raise."""
    wall, resident, floor = t.summaries.get("wall"), t.first_of("in_graph", "loop", "device"), t.floor
    if not wall or not resident:
        return None
    name, part = resident
    least_floor_s, floor_s = (min(floor.elapsed_s), floor.median_s) if floor else (LARGEST_FLOOR_S, LARGEST_FLOOR_S)
    excess = wall.median_s / (part.median_s + floor_s)
    least = min(excess, (wall.min_s or wall.median_s) / (part.median_s + least_floor_s))
    if least < (PARTS_APART if floor else PARTS_APART_WITHOUT_FLOOR):
        return None
    cost = f"the call floor ({seconds(floor_s)})" if floor else "the cost of a call"
    return Remark(
        "resident-far-below-wall",
        "warning" if excess > PARTS_FAR_APART else "info",
        f"wall ({seconds(wall.median_s)}) exceeds {name} ({seconds(part.median_s)}) plus {cost}. Known causes: Python "
        "in a wrapper, starting a program of many operations, allocating outputs, and waiting for worker threads. For "
        "call latency, use wall.",
    )


def more_than_a_call(t: CallTimes) -> Remark | None:
    """Part of a call cannot take longer than the call: then it was another machine, or another program."""
    wall = t.summaries.get("wall")
    above = [
        f"{name} ({seconds(part.median_s)})"
        for name, part in t.summaries.items()
        if name in ("device", "in_graph", "loop")
        and wall
        and (part.low_s or part.median_s) > CONTRADICTION * (wall.high_s or wall.median_s)
    ]
    if not wall or not above:
        return None
    return Remark(
        "more-than-a-call",
        "warning",
        f"wall ({seconds(wall.median_s)}) is shorter than {' and '.join(above)}, which a call contains. Either the "
        "machine changed its speed between the timers, or XLA compiles the function differently in their programs. "
        "Measure again.",
    )


def one_at_a_time(t: CallTimes) -> Remark | None:
    """Recorded runs are calls with Python in between; repetitions of the other timers follow without a pause."""
    device, resident = t.summaries.get("device"), t.first_of("in_graph", "loop")
    if not device or not resident or (device.low_s or device.median_s) < APART * resident[1].median_s:
        return None
    name, part = resident
    return Remark(
        "one-at-a-time",
        "info",
        f"device ({seconds(device.median_s)}) records runs one at a time, with Python in between. Without a pause, a "
        f"run takes {seconds(part.median_s)} ({name}).",
    )


def timers_apart(t: CallTimes) -> Remark | None:
    """Timers of the same work whose intervals don't meet. If `device` reads more, `one_at_a_time` says so."""
    found = [(name, t.summaries[name]) for name in ("in_graph", "loop", "device") if name in t.summaries]
    apart = [
        ((low, high), f"{low} ({seconds(below.median_s)}) reads less than {high} ({seconds(above.median_s)})")
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
        f"{' and '.join(text for _, text in apart)} for the same work. Known reasons: the machine changes its pace "
        f"between timers; {'; '.join(reasons)}. Measure again, and believe what repeats.",
    )


def no_interval(t: CallTimes) -> Remark | None:
    # The line of pipelined says so itself, and is rarely the one that people quote.
    timers = [name for name, summary in t.summaries.items() if summary.low_s is None and name != "pipelined"]
    if not timers:
        return None
    return Remark(
        "no-interval",
        "warning",
        f"The median of {' and '.join(timers)} has no interval: the readings are too few, or the machine kept changing "
        "its pace. Sample for longer (--max-time), or in several processes (--processes 5).",
    )
