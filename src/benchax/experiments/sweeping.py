"""Sweeps: many small comparisons in one session, and what their points and intervals are.

Times of a sweep are never those of runs one after the other. Each point is measured beside another one, in pairs, and
its interval is that of the medians of blocks, each with buffers and executables of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Literal

from benchax.case import Case
from benchax.experiments.pair_timing import Pair
from benchax.model import Comparison
from benchax.results.experiment import Facts, Point
from benchax.stats.intervals import median_interval
from benchax.units import number, seconds

LOOKS = (2, 3)
"""A sweep has many pairs, so each has two processes, or three where they do not settle it."""


Half = Literal["baseline", "candidate"]


Reading = tuple[float, "float | None", "float | None"]
"""Seconds, and the ends of the interval."""


def reading(*sides: tuple[Comparison | None, Half]) -> Reading | None:
    """Of one function that ran in these pairs: the median of the medians of its blocks, with the 95 % interval."""
    medians = [
        median(block.baseline_s if half == "baseline" else block.candidate_s)
        for c, half in sides
        if c is not None
        for block in c.blocks
    ]
    if not medians:
        return None
    low, high = median_interval(medians) or (None, None)
    return median(medians), low, high


def ladder(labels: Sequence[str], cases: Sequence[Case]) -> list[Pair]:
    """Each beside the one before it, under its own label."""
    steps = range(1, len(cases))
    return [Pair(labels[i], labels[i - 1], cases[i - 1], labels[i], cases[i]) for i in steps]


def points(
    sizes: Sequence[int], labels: Sequence[str], found: Mapping[str, Comparison], facts: Callable[[int, float], Facts]
) -> tuple[Point, ...]:
    """Of a ladder. `facts` is given the size and the seconds."""
    listed: list[Point] = []
    for i, (size, label) in enumerate(zip(sizes, labels, strict=True)):
        above = found.get(labels[i + 1]) if i + 1 < len(labels) else None
        own = reading((found.get(label), "candidate"), (above, "baseline"))
        if own is None:
            listed.append(Point(size, label, None, facts=(("not measured:", failure(found.get(label) or above)),)))
        else:
            listed.append(Point(size, label, *own, facts=facts(size, own[0])))
    return tuple(listed)


def failure(c: Comparison | None) -> str:
    if c is None:
        return "there was nothing to measure it beside"
    return c.failure.message if c.failure else c.why


def in_words(c: Comparison) -> str:
    """2.10 µs → 1.10 µs: faster, 1.9× (1.8 – 2.0)"""
    if c.failure is not None:
        return f"failed: {c.failure.message}"
    if c.baseline_value is None or c.candidate_value is None or not c.ratio:
        return f"unclear: {c.why}"
    times = f"{seconds(c.baseline_value)} → {seconds(c.candidate_value)}"
    if c.verdict in ("faster", "slower"):
        return f"{times}: {c.verdict}, {ratio(1 / c.ratio, c.high and 1 / c.high, c.low and 1 / c.low)}"
    return f"{times}: {c.verdict}{f' ({c.why})' if c.why else ''}"


def ratio(middle: float, low: float | None, high: float | None) -> str:
    """1.9× (1.8 – 2.0)"""
    around = f" ({number(low)} – {number(high)})" if low and high else ""
    return f"{number(middle)}×{around}"
