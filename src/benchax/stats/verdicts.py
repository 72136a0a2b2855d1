"""Decides *slower*: the ratio of two versions with its interval, and the word for it.

The ratio comes from samples that were taken in pairs. A pair is one sample of each version, taken within the same
millisecond in random order. Its value is ln(candidate / baseline), in which the speed of the machine divides out. Pairs
come in blocks. Within a block, buffers and executables stay the same, and so do their random costs. So blocks, not
pairs, show how much the next measurement can differ.

The word is slower, faster, same, or unclear, which is not "no change".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import fmean, median, stdev
from typing import Literal

from benchax.stats.intervals import normal_deviation, student_quantile

MEDIAN_EFFICIENCY = 1.2533
"""sqrt(pi / 2): the standard error of the median over that of the mean, for normal data."""
PRIOR_BLOCKS = 4
"""As many blocks as these are taken to have shown no more than their pairs explain: it steadies the first looks."""
POWER = 2.33 + 0.84
"""z for 1 % false alarms on one side, and for 80 % of true changes being found."""


@dataclass(frozen=True)
class Ratio:
    """Candidate over baseline: above 1 the candidate takes longer. A ratio of medians would be 2.3 times as noisy."""

    ratio: float
    """exp of the median of all logarithms."""
    low: float | None
    """The interval's ends; None if there are too few pairs."""
    high: float | None
    design_effect: float
    """By how much differences between blocks reduce the number of pairs that count; 1 is not at all."""
    smallest_effect: float
    """The test can miss a change smaller than this share (found in 80 % at 1 % false alarms)."""


def ratio_of(blocks: Sequence[Sequence[float]], alpha: float) -> Ratio:
    """Estimates the ratio from blocks of ln(candidate / baseline), with an interval of level 1 - alpha.

    Usually it is the interval of the sign test, which assumes no shape of the distribution. It takes the order
    statistics of all logarithms at the ranks n/2 -+ q n, q = T / (2 sqrt(n / E)) + 1 / (2 n). E is the design effect of
    the blocks (Kish 1965, Survey Sampling, 5.4). It is the variance of the blocks' medians over the variance that their
    pairs explain, shrunk towards 1 by `PRIOR_BLOCKS`. T is Student's quantile with P + 3 degrees of freedom for P
    blocks.

    On a quiet machine pairs hardly scatter, and mainly differences between blocks remain. If the pairs count for fewer
    than 2 P independent ones, the medians of the blocks are the data. The interval is then Student's for their mean,
    with P - 1 degrees of freedom (as in Kalibera & Jones, ISMM 2013).

    Args:
        blocks: each with at least one logarithm.
        alpha: the share of intervals that can miss the true ratio.
    """
    ordered = sorted(chain.from_iterable(blocks))
    n, effect = len(ordered), design_effect(blocks)
    if n / effect < 2 * len(blocks) and len(blocks) > 1:
        return _of_blocks(blocks, effect, alpha)
    share = student_quantile(1 - alpha / 2, len(blocks) + 3) * 0.5 * math.sqrt(effect / n) + 0.5 / n
    low = high = None
    if share < 0.5:
        low = math.exp(ordered[math.floor((0.5 - share) * n)])
        high = math.exp(ordered[math.ceil((0.5 + share) * n) - 1])
    seen = MEDIAN_EFFICIENCY * normal_deviation(ordered) * math.sqrt(effect / n) * POWER
    return Ratio(math.exp(median(ordered)), low, high, effect, seen)


def _of_blocks(blocks: Sequence[Sequence[float]], effect: float, alpha: float) -> Ratio:
    medians = [median(block) for block in blocks]
    error = stdev(medians) / math.sqrt(len(medians))
    half = student_quantile(1 - alpha / 2, len(medians) - 1) * error
    middle = fmean(medians)
    # Identical readings indicate a coarse clock, not certainty.
    ends = (math.exp(middle - half), math.exp(middle + half)) if error else (None, None)
    return Ratio(math.exp(middle), *ends, effect, error * POWER or math.inf)


def design_effect(blocks: Sequence[Sequence[float]]) -> float:
    """At least 1; infinite if blocks differ and the pairs inside them do not.

    Each block is measured by its own scatter if that is above the usual scatter. If a neighbor spoils half of the pairs
    of one block, it moves the block's median. The scatter of these pairs shows it.
    """
    if len(blocks) < 2:
        return 1.0
    medians = [median(block) for block in blocks]
    explained = [(MEDIAN_EFFICIENCY * normal_deviation(block)) ** 2 / len(block) for block in blocks]
    usual, centre = median(explained), median(medians)
    between = [(m - centre) ** 2 for m in medians]
    if not any(between):
        return 1.0
    if not usual:
        return math.inf
    relative = sum(b / max(e, usual) for b, e in zip(between, explained, strict=True)) / (len(blocks) - 1)
    return max(1.0, (PRIOR_BLOCKS + (len(blocks) - 1) * relative) / (PRIOR_BLOCKS + len(blocks) - 1))


def grade(smallest_effect: float) -> str:
    """A to F: what a comparison would have missed. 1, 2, 5, 10 % and more."""
    limits = {"A": 0.01, "B": 0.02, "C": 0.05, "D": 0.10}
    return next((letter for letter, limit in limits.items() if smallest_effect <= limit), "F")


# ---- the word ---------------------------------------------------------------------------------------------------

Verdict = Literal["faster", "slower", "same", "unclear"]

ALPHA = 0.02
"""Alpha of the interval at each look. With up to five looks at growing data, below 1 % of unchanged code is called
slower (tests/stats/test_replay.py). This is the rate before any confirmation."""
CONFIRMING_ALPHA = 0.05
"""Alpha of a second measurement, which only has to agree. By chance both call slower with the product of their
probabilities.
"""
LEAST_CHANGE = 0.02
"""Smaller differences have no name: buffers and executables alone may make as much."""
SAME_WITHIN = 0.05


def least_change(resolution: float) -> float:
    """The smallest change that has a name where "same" means within `resolution`: 2 % at 5 %, 0.4 % at 1 %."""
    return resolution * LEAST_CHANGE / SAME_WITHIN


def verdict(ratio: Ratio, *, least_change: float = LEAST_CHANGE, same_within: float = SAME_WITHIN) -> Verdict:
    """Slower or faster: the interval leaves out 1, and the ratio is beyond `least_change`. Same: the interval is within
    1 / (1 + same_within) and 1 + same_within. Else unclear, which is not "no change"."""
    if ratio.low is None or ratio.high is None:
        return "unclear"
    # Require both: with enough pairs, any interval excludes 1 because of buffers and executables alone.
    if ratio.low > 1 and ratio.ratio > 1 + least_change:
        return "slower"
    if ratio.high < 1 and ratio.ratio < 1 / (1 + least_change):
        return "faster"
    if ratio.low > 1 / (1 + same_within) and ratio.high < 1 + same_within:
        return "same"
    return "unclear"
