"""From a ratio with its interval to a word: slower, faster, same, or unclear."""

from __future__ import annotations

from typing import Literal

from benchax.stats.ratios import Ratio

Verdict = Literal["faster", "slower", "same", "unclear"]

ALPHA = 0.02
"""Of the interval at each look: with up to five looks at growing data, below 1 % of unchanged code is called slower
(tests/stats/test_replay.py), before anything is confirmed."""
CONFIRMING_ALPHA = 0.05
"""Of a second measurement, which only has to agree: what both call slower by chance is the product of their shares."""
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
    if ratio.low > 1 and ratio.ratio > 1 + least_change:
        return "slower"
    if ratio.high < 1 and ratio.ratio < 1 / (1 + least_change):
        return "faster"
    if ratio.low > 1 / (1 + same_within) and ratio.high < 1 + same_within:
        return "same"
    return "unclear"
