"""Remarks on a comparison that is not of like with like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from benchax.comparing.break_even import SAME_PROGRAM
from benchax.measuring.remarks.of_functions import describe_nonfinite_result
from benchax.measuring.remarks.of_times import describe_busy, describe_recompiling
from benchax.model import Comparison, Noise, Remark
from benchax.program.cost import INLINE_FLOPS
from benchax.units import count, number, seconds

ALONE_APART = 1.1
"""A remark is made if a ratio in a row is this far outside of the interval of the alternating samples."""


def remarks(document: Mapping[str, Any], labels: Sequence[str]) -> tuple[Remark, ...]:
    """Makes remarks from a process's report about the sides (`measuring.paired.take_blocks`)."""
    sides = list(zip(labels, document["sides"], strict=True))
    found = (*_disagreements(sides), *_results(sides), *_unlike(document, labels))
    return tuple(r for r in (*found, _inline(document, sides), _one_operation(sides)) if r)


def doubts(compiles: Mapping[str, int], noise: Sequence[Noise]) -> tuple[Remark, ...]:
    """Lists the disturbances of the times.

    Args:
        compiles: programs that were compiled while a version was timed, by its label.
        noise: the load by other processes, for each process; the remark names the busiest.
    """
    busiest = max(noise, key=lambda each: (each.others_share or 0.0) + (each.steal_share or 0.0), default=Noise())
    found = [*(describe_recompiling(n, label) for label, n in compiles.items()), describe_busy(busiest)]
    return tuple(remark for remark in found if remark)


def alone(run: Comparison, alone_s: Sequence[tuple[float, float]]) -> Remark | None:
    """States both ratios if versions called in a row have another ratio than versions called alternately.

    Args:
        run: of run times, taken alternately.
        alone_s: for each process, seconds of a call of the baseline and of the candidate, each in its own row of calls.
    """
    if not run.ratio or not run.low or not run.high or not run.baseline_value or len(alone_s) < 2:
        return None
    ratios = [candidate / baseline for baseline, candidate in alone_s]
    if run.low / ALONE_APART <= max(ratios) and min(ratios) <= run.high * ALONE_APART:
        return None
    labels = run.baseline.label, run.candidate.label
    row_s = [median(each) for each in zip(*alone_s, strict=True)]
    turns_s = [run.baseline_value, run.baseline_value * run.ratio]
    return Remark(
        "alone-differs",
        "warning",
        f"when each is called in a row, {_compare(labels, row_s)}; in turns, which is what is judged, "
        f"{_compare(labels, turns_s)}. A version leaves caches and memory in another state for the next one than for "
        "itself; believe the figure that is like your program",
    )


def _compare(labels: Sequence[str], each_s: Sequence[float]) -> str:
    """naive takes 16.5 times as long as fused (66.0 ms and 4.00 ms)"""
    (fast_s, fast), (slow_s, slow) = sorted(zip(each_s, labels, strict=True))
    return f"{slow} takes {number(slow_s / fast_s)} times as long as {fast} ({seconds(slow_s)} and {seconds(fast_s)})"


def _disagreements(sides: Sequence[tuple[str, Mapping[str, Any]]]) -> list[Remark]:
    return [
        Remark(
            "outputs-differ", "error", f"{label} gives another result than {sides[0][0]}: {side['agreement']['why']}"
        )
        for label, side in sides
        if side.get("agreement") and not side["agreement"]["agrees"]
    ]


def _results(sides: Sequence[tuple[str, Mapping[str, Any]]]) -> Iterator[Remark | None]:
    for label, side in sides:
        yield describe_nonfinite_result(side.get("nonfinite", ""), f"the result of {label}")
        if side.get("returns_nothing"):
            yield Remark("no-outputs", "warning", f"{label} returns nothing, so there is no result to compare.")


def _unlike(document: Mapping[str, Any], labels: Sequence[str]) -> list[Remark]:
    return [
        Remark("not-exported", "warning", f"{label} ran as it is beside an exported program, because {why}")
        for label, why in zip(labels, document["not_exported"], strict=False)
        if why
    ]


def _one_operation(sides: Sequence[tuple[str, Mapping[str, Any]]]) -> Remark | None:
    """An eager function of one operation, or of one call of a jitted function, runs what its jitted form runs."""
    if len(sides) != 2 or {side.get("operations") for _, side in sides} != {None, 1}:
        return None
    label = next(label for label, side in sides if side.get("operations") == 1)
    return Remark(
        SAME_PROGRAM, "info", f"both run the same program: {label} is one operation, which JAX compiles as it is"
    )


def _inline(document: Mapping[str, Any], sides: Sequence[tuple[str, Mapping[str, Any]]]) -> Remark | None:
    """XLA:CPU runs small programs on the calling thread and hands the others over, which costs 10 to 50 µs."""
    known = [(label, side["inline_flops"]) for label, side in sides if side.get("inline_flops") is not None]
    if document["environment"].get("backend") != "cpu" or len(known) < len(sides):
        return None
    small = [(label, flops) for label, flops in known if flops < INLINE_FLOPS]
    if not small or len(small) == len(known):
        return None
    listed = ", ".join(f"{label} {count(flops, 'FLOP')}" for label, flops in known)
    return Remark(
        "inline-limit",
        "warning",
        f"they lie on different sides of XLA:CPU's limit of {INLINE_FLOPS} FLOP, above which a call is "
        f"dispatched to the thread pool: {listed}",
    )
