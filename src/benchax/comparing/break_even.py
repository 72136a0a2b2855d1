"""The number of calls until compiling pays: the cost of building over the saving of each compiled call.

The eager and the compiled call run alternately to measure the saving (`paired_runs`). Two rows measured one after the
other show no difference below a factor of 2, since the machine differs by as much between two moments
(docs/explanations/trust.md).

The bounds are those of the saving of a call: the ratio has an interval, and a call takes another time in each process.
Eager calls differ by up to a factor of 4, depending on whether the allocator has pages at hand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median

from benchax.errors import UsageError
from benchax.grouping import group_by
from benchax.model import Comparison, Estimate, Measurement
from benchax.stats.summary import LEVEL, Summary
from benchax.units import percent, seconds

APART = 2.0
"""Rows that were measured one after the other differ where even the near ends of their intervals are this far apart."""
MANY_CALLS = 10_000
"""Whoever calls a function less often than it takes until compiling pays loses by it; few call one more often."""
SAME_PROGRAM = "same-program"
"""The remark of a comparison in which both calls run one program."""


@dataclass(frozen=True)
class BreakEven:
    """Compiling pays from `calls` calls on. `low` and `high` follow from the interval of the saving of a call.

    `None`: never. `speedup` is eager over jitted time per call. Without intervals (`has_bounds`: too few samples) the
    bounds come from the medians alone.

    Example:
        >>> found = benchax.BreakEven(
        ...     calls=12, low=10, high=15, level=0.95, build_s=0.1, eager_s=0.01, jitted_s=0.001, is_same_program=False
        ... )
        >>> found.speedup
        10.0
    """

    build_s: float
    eager_s: float
    jitted_s: float
    """Where `is_paired`: the eager time times the ratio, or the reverse."""
    calls: int | None
    low: int | None
    high: int | None
    has_bounds: bool = True
    level: float = 0.95
    """The level of the bounds."""
    is_paired: bool = True
    """Did both calls run alternately?"""
    is_clear: bool = True
    """Is it known whether compiling pays?"""
    is_same: bool = False
    """Are both calls as fast, as near as the comparison looked?"""
    within: float | None = None
    """How near that was."""
    is_same_program: bool = False
    """The eager call runs the program that the jitted one runs: they differ in how Python starts it."""
    speedup_low: float | None = None
    """The ends of the interval of `speedup`, where it is paired."""
    speedup_high: float | None = None

    @property
    def speedup(self) -> float:
        return self.eager_s / self.jitted_s

    @property
    def speedup_text(self) -> str:
        """3.48× (3.42 – 3.55)"""
        return Estimate(self.speedup, self.speedup_low, self.speedup_high).text(unit="×")

    @property
    def pays_soon(self) -> bool:
        """Within `MANY_CALLS`, by the end of the interval that speaks for compiling?"""
        return self.low is not None and self.low <= MANY_CALLS and not self.is_same

    @property
    def advice(self) -> str:
        """Whether to jit: the same for a function that is jitted and for one that is not."""
        inside = "If only jitted functions call it, do nothing: a jit within a jit costs nothing."
        if self.calls is None:
            return f"Don't jit it where you call it directly: a jitted call is no faster. {inside}"
        return (
            f"Use jax.jit if you call it directly {self.calls:,} times or more in a process, and omit it for fewer "
            f"calls. {inside}"
        )

    def __str__(self) -> str:
        cost = f"ompiling ({seconds(self.build_s)})"
        times = f"{seconds(self.eager_s)} eager, {seconds(self.jitted_s)} jitted"
        one = "Both calls run the same program; only the way that Python starts it differs. " * self.is_same_program
        return one + self._verdict(cost, times)

    def _verdict(self, cost: str, times: str) -> str:
        if self.is_same:
            near = f" within {percent(self.within)}" if self.within is not None else ""
            return f"C{cost} saves nothing measurable: both calls take {seconds(self.eager_s)}{near}."
        few, many = (f"{n:,}" if n else "never" for n in (self.low, self.high))
        bounds = f" ({100 * self.level:g} %: {few} – {many})" if few != many else ""
        if not self.has_bounds:
            bounds = " (no interval: too few samples)"
        if not self.is_clear:
            apart = "" if self.is_paired else ", one after the other, which can't resolve less than a factor of 2"
            return f"Whether c{cost} pays is unclear{bounds}: {times}{apart}."
        if self.calls is None:
            return f"C{cost} never pays{bounds}: {times}."
        calls = f"{self.calls:,} call{'s' * (self.calls > 1)}"
        return f"C{cost} pays from {calls} on{bounds}: {times}, {self.speedup_text} faster."


def break_even(eager: Measurement, jitted: Measurement, comparison: Comparison | None = None) -> BreakEven:
    """Break-even of two rows of one function: measured with jit=False, and jitted.

    calls = build / (eager - jitted), rounded up. `comparison` compares run times of the jitted call (candidate) with
    the eager one. With it, the saving is the eager time times one minus the ratio, and the bounds are those of the
    ratio. Without it, the bounds come from the opposite ends of the rows' intervals. Nothing is decided if these are
    within a factor of 2.

    Raises:
        UsageError: one of these is not a row, or the jitted row lacks its build time. Or, without a comparison, one of
            the rows lacks wall samples.

    Example:
        >>> eager = benchax.bench(jnp.sin, "f32[1000]", jit=False, max_time_s=0.05, store="off")
        >>> jitted = benchax.bench(jnp.sin, "f32[1000]", max_time_s=0.05, store="off")
        >>> benchax.break_even(eager, jitted).build_s > 0
        True
    """
    for row in (eager, jitted):
        if not isinstance(row, Measurement):  # pyright: ignore[reportUnnecessaryIsInstance]  # people give what they have
            raise UsageError(f"{row!r} isn't a row", "two measurements, as benchax.bench and benchax.load give them")
    build_s = jitted.stages.build_s
    if build_s is None:
        raise UsageError(f"the row of {jitted.case.label!r} has no time to build", "a row of a jitted function")
    if comparison is not None and (found := of_comparison(build_s, comparison)) is not None:
        return found
    slow, fast = _wall(eager), _wall(jitted)
    (slow_low, slow_high), (fast_low, fast_high) = (
        (each.low_s or each.median_s, each.high_s or each.median_s) for each in (slow, fast)
    )
    return BreakEven(
        build_s,
        slow.median_s,
        fast.median_s,
        _calls(build_s, slow.median_s - fast.median_s),
        _calls(build_s, slow_high - fast_low),
        _calls(build_s, slow_low - fast_high),
        has_bounds=None not in (slow.low_s, fast.low_s),
        is_paired=False,
        is_clear=slow_low > APART * fast_high or fast_low > APART * slow_high,
    )


def of_comparison(build_s: float, c: Comparison, *, is_eager_baseline: bool = True) -> BreakEven | None:
    """Break-even by the pairs of a comparison of run times; None if it has no interval.

    Args:
        build_s: of the jitted function.
        is_eager_baseline: is the eager call the baseline, and the jitted one the candidate? Else the reverse.
    """
    if c.baseline_value is None or c.estimate is None or not c.low or not c.high:
        return None
    times = (c.baseline_value, c.baseline_value * c.estimate.value)
    eager, jitted = times if is_eager_baseline else times[::-1]
    speedup = c.estimate.map(lambda ratio: 1 / ratio) if is_eager_baseline else c.estimate
    sign = 1 if is_eager_baseline else -1
    saved_s = [sign * c.baseline_value * (1 - ratio) for ratio in (c.low, c.high)]
    saved_s += [sign * each for each in _saved_by_process(c)]
    return BreakEven(
        build_s,
        eager,
        jitted,
        _calls(build_s, eager - jitted),
        _calls(build_s, max(saved_s)),
        _calls(build_s, min(saved_s)),
        level=LEVEL,
        is_clear=c.verdict in ("faster", "slower"),
        is_same=c.verdict == "same",
        within=c.resolution,
        is_same_program=any(remark.code == SAME_PROGRAM for remark in c.remarks),
        speedup_low=speedup.low,
        speedup_high=speedup.high,
    )


def _saved_by_process(c: Comparison) -> list[float]:
    """By how many seconds a call of the candidate is shorter in each process, by the median of its pairs."""
    processes = group_by(c.blocks, lambda block: block.process).values()
    return [
        median(a - b for block in blocks for a, b in zip(block.baseline_s, block.candidate_s, strict=True))
        for blocks in processes
    ]


def _wall(row: Measurement) -> Summary:
    if (summary := row.find_summary("wall")) is None:
        raise UsageError(f"the row of {row.case.label!r} has no wall samples", "rows measured by the timer wall")
    return summary


def _calls(build_s: float, saved_s: float) -> int | None:
    return math.ceil(build_s / saved_s) if saved_s > 0 else None
