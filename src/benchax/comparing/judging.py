"""From samples that were taken in pairs, and from counts, to comparisons.

How *slower* is decided of one ratio is in `stats/verdicts.py`. Here it is asked of each metric; where the wall time
leaves it unclear, the processor time is a second measure (`judge_cpu_time`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from benchax import units
from benchax.errors import UsageError
from benchax.model import Block, Comparison, Environment, Failure, Metric
from benchax.stats.verdicts import ALPHA, SAME_WITHIN, Ratio, Verdict, least_change, ratio_of, verdict
from benchax.units import percent, read_share

SAME_PROGRAM = "the same program: nothing was timed"
BUILD_LEAST_CHANGE, BUILD_SAME_WITHIN = 0.05, 0.20
"""Compiling is timed once in a block."""


@dataclass
class ComparisonEvidence:
    """The readings of two versions so far."""

    run: list[Block] = field(default_factory=list[Block])
    build: list[Block] = field(default_factory=list[Block])
    """One pair in each."""
    counts: dict[Metric, tuple[float | None, float | None]] = field(default_factory=dict)
    """The counts from the compiled programs: baseline, candidate."""
    failure: Failure | None = None
    is_same_program: bool = False
    """Both programs are one, so that nothing was timed."""


def judge_times(context: Comparison, metric: Metric, blocks: Sequence[Block], alpha: float = ALPHA) -> Comparison:
    """Run times, or times to build.

    Args:
        context: of the two versions, without readings.
    """
    if not blocks:
        return replace(context, metric=metric, why="nothing was timed")
    within = context.resolution if metric == "run" else BUILD_SAME_WITHIN
    least = least_change(within) if metric == "run" else BUILD_LEAST_CHANGE
    ratio = ratio_of([block.log_ratios for block in blocks], alpha)
    found = verdict(ratio, least_change=least, same_within=within)
    # The candidate has no median of its own: two medians of one comparison could contradict its ratio.
    baseline_s = median([s for block in blocks for s in block.baseline_s])
    comparison = replace(
        context,
        metric=metric,
        verdict=found,
        why=_why(ratio, found, within),
        ratio=ratio.ratio,
        low=ratio.low,
        high=ratio.high,
        smallest_effect=ratio.smallest_effect if 0 < ratio.smallest_effect < math.inf else None,
        baseline_value=baseline_s,
        candidate_value=baseline_s * ratio.ratio,
        blocks=tuple(blocks),
    )
    if metric != "run" or found != "unclear":
        return comparison
    by_cpu = judge_cpu_time(blocks, ratio, alpha, within, context.environment)
    return comparison if by_cpu is None else _by_witness(comparison, *by_cpu)


def _by_witness(unclear: Comparison, cpu: Ratio, word: Verdict) -> Comparison:
    """`unclear` with what the processor time says; decided by it where it may decide."""
    found = replace(unclear, cpu_ratio=cpu.ratio, cpu_low=cpu.low, cpu_high=cpu.high)
    seen = f"CPU time, {units.change(cpu.ratio, cpu.low, cpu.high)}"
    if word == "unclear":
        return replace(found, why=f"{found.why}; the {seen}, does not decide")
    within = f"within {percent(found.resolution)} " if word == "same" else ""
    return replace(found, verdict=word, why=f"{within}by {seen}", is_by_cpu_time=True)


def _why(ratio: Ratio, found: Verdict, same_within: float) -> str:
    if found == "same":
        return f"within {percent(same_within)}"
    if found != "unclear":
        return ""
    if ratio.low is None or not 0 < ratio.smallest_effect < math.inf:
        return "too few samples for an interval"
    return f"a change below {percent(ratio.smallest_effect)} could have been missed"


def judge_counts(context: Comparison, metric: Metric, before: float | None, after: float | None) -> Comparison:
    """Bytes, which the compiler counts, and operations: equal or not."""
    context = replace(context, metric=metric, method="counted")
    if before is None or after is None:
        side = context.baseline if before is None else context.candidate
        counted = "some operations can't be counted in" if metric == "flops" else "the compiler doesn't report it for"
        return replace(context, why=f"not measured, because {counted} {side.label}")
    found: Verdict = "same" if before == after else "slower" if after > before else "faster"
    ratio = after / before if before else None
    return replace(context, verdict=found, ratio=ratio, baseline_value=before, candidate_value=after)


def judge(context: Comparison, evidence: ComparisonEvidence, alpha: float = ALPHA) -> list[Comparison]:
    """Returns one comparison for each metric that has data; after a failure, just one."""
    if evidence.failure is not None:
        return [replace(context, why=evidence.failure.sentence, failure=evidence.failure)]
    if evidence.is_same_program:
        return [replace(context, method="same program", verdict="same", why=SAME_PROGRAM)]
    found = [judge_times(context, "run", evidence.run, alpha)]
    if evidence.build:
        found.append(judge_times(context, "compile", evidence.build, alpha))
    return found + [judge_counts(context, metric, *counts) for metric, counts in evidence.counts.items()]


def confirm(first: Comparison, second: Comparison) -> Comparison:
    """Returns `first`, checked against new data: if they do not show the change too, it is not reported."""
    if second.verdict == first.verdict:
        return replace(first, confirmed=True)
    return withdraw(first, f", not confirmed ({change(second)})")


def withdraw(first: Comparison, reason: str) -> Comparison:
    """Returns `first` without its verdict, which nothing has confirmed."""
    why = f"{first.verdict} at first ({change(first)}){reason}"
    return replace(first, verdict="unclear", why=why, confirmed=False, is_by_cpu_time=False)


def change(comparison: Comparison) -> str:
    """+3.2 %"""
    return "no ratio" if comparison.ratio is None else units.change(comparison.ratio)


# ---- the processor time as a second witness --------------------------------------------------------------------


LONG_S = 0.001
"""Longer calls are usually preempted if other programs compute: the scheduler's time slices are 1 to 10 ms."""
BUSY_SHARE = 0.6
"""The share of the cores, in the best samples. A program that keeps this many cores busy waits if another process takes
one.
"""
SAME_BUSY = 0.10


def judge_cpu_time(
    blocks: Sequence[Block], wall: Ratio, alpha: float, resolution: float, environment: Environment | None
) -> tuple[Ratio, Verdict] | None:
    """The processor time of the process as a second measure, if the wall time is unclear.

    Some programs wait for cores that others use: they use all cores, or their calls last longer than the scheduler's
    time slices. Their wall times scatter with the load of the neighbors. Their processor times (of all threads of the
    process, read around each sample) hardly scatter. But processor time is another quantity. It does not show waiting
    for a device, a lock or slow memory allocation. It does not show lost parallelism either: half of the threads need
    the same processor time for twice the wall time. So it never decides against the wall time, and only if both sides
    keep the cores equally busy:

        asked    if the wall time is unclear, the backend is the CPU, and calls keep most cores busy or last over
                 1 ms
        counts   if both sides keep about as many cores busy in their best samples (within 10 %)
        decides  by the same rule as the wall time, if the wall's estimate alone would give the same word, and the
                 processor's estimate is in the wall's interval

    Returns its ratio, and its verdict: "unclear" where it must not, or cannot, decide.
    None if it is not asked: another backend, short calls on few cores, or no readings.

    Args:
        wall: of the same blocks, unclear by itself.
        alpha, resolution: as for the wall time.
    """
    if environment is None or environment.backend != "cpu" or not all(block.cpu_log_ratios for block in blocks):
        return None
    busy = [
        busy_cores([(block.baseline_cpu_s, block.baseline_s) for block in blocks]),
        busy_cores([(block.candidate_cpu_s, block.candidate_s) for block in blocks]),
    ]
    is_long = median([s for block in blocks for s in block.baseline_s]) > LONG_S
    if not is_long and min(busy) < max(1.0, BUSY_SHARE * (environment.cores or 1)):
        return None
    found = ratio_of([block.cpu_log_ratios for block in blocks], alpha)
    word = verdict(found, least_change=least_change(resolution), same_within=resolution)
    # Does the wall-clock estimate give the same verdict, and can it estimate the processor's ratio?
    middle = replace(wall, low=wall.ratio, high=wall.ratio)
    is_comparable = max(busy) <= (1 + SAME_BUSY) * min(busy) and (wall.low or 0.0) <= found.ratio <= (wall.high or 0.0)
    agrees = word == verdict(middle, least_change=least_change(resolution), same_within=resolution)
    return found, word if is_comparable and agrees else "unclear"


def busy_cores(samples: Iterable[tuple[Sequence[float], Sequence[float]]]) -> float:
    """How many cores a side keeps busy in the best quarter of its samples, where fewest others had taken any.

    Args:
        samples: (processor time, wall time) of each block, in seconds.
    """
    shares = sorted(c / s for cpu, wall in samples for c, s in zip(cpu, wall, strict=True))
    return median(shares[-max(1, len(shares) // 4) :])


# ---- how small a change is to be seen --------------------------------------------------------------------------


FINEST, COARSEST = 0.005, 0.20
"""Below the first, buffers and executables alone differ by as much, however many of them are drawn."""


def resolution_of(given: float | str | None) -> float:
    """0.01 of 0.01, "0.01" and "1%"; the usual 5 % of None.

    Raises:
        UsageError: no share, or one that is not between 0.5 % and 20 %.
    """
    if given is None:
        return SAME_WITHIN
    share = read_share(given)
    if not FINEST <= share <= COARSEST:
        raise UsageError(
            f"invalid resolution {given!r}",
            f"a share between {100 * FINEST:g} % and {100 * COARSEST:g} %: 1%, or 0.01",
        )
    return share


def blind_spot(comparisons: Iterable[Comparison]) -> str:
    """States the limit of "same": with 5 %, changes up to 2 % are called same.

    Empty if nothing is called the same, or if the limit is already the smallest that users can request.
    """
    within = [c.resolution for c in comparisons if c.metric == "run" and c.verdict == "same" and c.ratio is not None]
    coarsest = max(within, default=0.0)
    missed = least_change(coarsest)
    if missed / 2 < FINEST:
        return ""
    return (
        f"a slowdown of up to {100 * missed:.2g} % counts as same (within {100 * coarsest:.2g} %); "
        f"--resolution {50 * missed:.2g}% finds it"
    )
