"""The processor time of the process as a second witness, where the wall time of a comparison is left unclear.

A program that uses all cores, or whose calls last longer than the scheduler's turns, waits for cores that others use:
its wall times scatter by what the neighbours do, its processor times (of all threads of the process, read around each
sample) hardly. But processor time is another quantity. It is blind to waiting, for a device, a lock or memory that is
handed out slowly, and to lost parallelism: half of the threads need as much of it for twice the time. So it never
decides against the wall time, and only where both sides keep the cores busy alike:

    asked      where the wall time is unclear, the backend is the CPU, and calls keep most cores busy or last over 1 ms
    heard      where both sides keep about as many cores busy in their best samples (within 10 %)
    decides    by the same rule as the wall time, where the wall's estimate alone would give the same word, and the
               processor's estimate lies in the wall's interval
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from benchax.model import Block, Environment
from benchax.stats.ratios import Ratio, ratio_of
from benchax.stats.verdicts import Verdict, least_change, verdict

LONG_S = 0.001
"""Calls beyond this are preempted as a rule where others compute: the scheduler's turns are 1 to 10 ms."""
BUSY_SHARE = 0.6
"""Of the cores, in the best samples: a program that keeps so many busy waits for whoever takes one."""
SAME_BUSY = 0.10


@dataclass(frozen=True)
class Testimony:
    """What the processor time says, and whether it decides."""

    ratio: Ratio
    verdict: Verdict
    """ "unclear" where it must not, or cannot, decide."""


def testify(
    blocks: Sequence[Block], wall: Ratio, alpha: float, resolution: float, environment: Environment | None
) -> Testimony | None:
    """None where this witness is not asked: another backend, short calls on few cores, or nothing was read.

    Args:
        wall: of the same blocks, unclear by itself.
        alpha, resolution: as for the wall time.
    """
    if environment is None or environment.backend != "cpu" or not all(block.cpu_log_ratios for block in blocks):
        return None
    busy = [busy_cores(blocks, half) for half in ("baseline", "candidate")]
    is_long = median([s for block in blocks for s in block.baseline_s]) > LONG_S
    if not is_long and min(busy) < max(1.0, BUSY_SHARE * (environment.cores or 1)):
        return None
    found = ratio_of([block.cpu_log_ratios for block in blocks], alpha)
    word = verdict(found, least_change=least_change(resolution), same_within=resolution)
    is_heard = max(busy) <= (1 + SAME_BUSY) * min(busy) and _agree(word, found, wall, resolution)
    return Testimony(found, word if is_heard else "unclear")


def busy_cores(blocks: Sequence[Block], half: str) -> float:
    """How many cores a side keeps busy in the best quarter of its samples, where fewest others had taken any."""
    pairs = [
        (block.baseline_cpu_s, block.baseline_s) if half == "baseline" else (block.candidate_cpu_s, block.candidate_s)
        for block in blocks
    ]
    shares = sorted(c / s for cpu, wall in pairs for c, s in zip(cpu, wall, strict=True))
    return median(shares[-max(1, len(shares) // 4) :])


def _agree(word: Verdict, processor: Ratio, wall: Ratio, resolution: float) -> bool:
    """Does the wall's estimate give the same word, and can it be the processor's ratio that it estimates?"""
    if wall.low is None or wall.high is None or not wall.low <= processor.ratio <= wall.high:
        return False
    estimate = Ratio(wall.ratio, wall.ratio, wall.ratio, wall.pairs, wall.blocks, 1.0, 0.0)
    return word == verdict(estimate, least_change=least_change(resolution), same_within=resolution)
