"""How many calls until compiling pays: the cost of building over what each compiled call saves."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchax.errors import UsageError
from benchax.model import Measurement
from benchax.stats.summary import Summary
from benchax.units import seconds


@dataclass(frozen=True)
class BreakEven:
    """Compiling pays from `calls` calls on; between `low` and `high` by the intervals of the two medians.

    `None`: never. `speedup` is eager over jitted time per call. Without intervals (`has_bounds`: too few samples) the
    bounds are those of the medians alone.
    """

    build_s: float
    eager_s: float
    jitted_s: float
    calls: int | None
    low: int | None
    high: int | None
    has_bounds: bool = True

    @property
    def speedup(self) -> float:
        return self.eager_s / self.jitted_s

    def __str__(self) -> str:
        cost = f"Compiling ({seconds(self.build_s)})"
        times = f"{seconds(self.eager_s)} eager, {seconds(self.jitted_s)} jitted"
        few, many = (f"{n:,}" if n else "never" for n in (self.low, self.high))
        bounds = f" (95 %: {few} – {many})" if few != many else ""
        if not self.has_bounds:
            bounds = " (no interval: too few samples)"
        if self.calls is None and self.low:
            return f"{cost} may pay or not{bounds}: {times}."
        if self.calls is None:
            return f"{cost} never pays{bounds}: {times}."
        calls = f"{self.calls:,} call{'s' * (self.calls > 1)}"
        return f"{cost} pays from {calls} on{bounds}: {times}, {self.speedup:.1f} times faster."


def break_even(eager: Measurement, jitted: Measurement) -> BreakEven:
    """Break-even of two rows of one function: measured with jit=False, and jitted.

    calls = build / (eager - jitted), rounded up; its bounds come from the opposite ends of the two intervals, so they
    hold at least as often as both intervals hold together.

    Raises:
        UsageError: one of the rows lacks wall samples, or the jitted one its time to build.
    """
    slow, fast = _wall(eager), _wall(jitted)
    build_s = jitted.stages.build_s
    if build_s is None:
        raise UsageError(f"the row of {jitted.case.label!r} has no time to build", "a row of a jitted function")
    return BreakEven(
        build_s,
        slow.median_s,
        fast.median_s,
        _calls(build_s, slow.median_s - fast.median_s),
        _calls(build_s, (slow.high_s or slow.median_s) - (fast.low_s or fast.median_s)),
        _calls(build_s, (slow.low_s or slow.median_s) - (fast.high_s or fast.median_s)),
        has_bounds=None not in (slow.low_s, fast.low_s),
    )


def _wall(row: Measurement) -> Summary:
    if (summary := row.summary("wall")) is None:
        raise UsageError(f"the row of {row.case.label!r} has no wall samples", "rows measured by the timer wall")
    return summary


def _calls(build_s: float, saved_s: float) -> int | None:
    return math.ceil(build_s / saved_s) if saved_s > 0 else None
