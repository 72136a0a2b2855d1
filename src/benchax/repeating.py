"""What repeats in a sequence of calls: the rounds of a loop, each of which may call the same thing several times."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

LEAST_CALLS = 3
"""Two calls may be anything; three make two steps of the same kind."""
LONGEST_PERIOD = 64
SAME = 0.8
"""So much of a sequence must return after a period: reports and checkpoints come in between."""
LONGEST_HISTORY = 8

Ints = NDArray[np.int64]


def once_a_round(sequence: Ints, at: Ints) -> Ints:
    """Chooses those of the calls `at` that begin a round of the sequence; all of them where there is one in each."""
    period = _period(sequence)
    if period is None:
        return at
    in_round = len(at) / (len(sequence) / period)
    if in_round < 1.5:
        return at
    for length in range(1, LONGEST_HISTORY + 1):
        histories = [tuple(sequence[max(0, i - length) : i].tolist()) for i in at.tolist()]
        counts = Counter(histories)
        once = [h for h, n in counts.items() if abs(n * in_round / len(at) - 1) < 1 - SAME]
        if once:
            return at[[h == once[0] for h in histories]]
    return at


def _period(sequence: Ints) -> int | None:
    """After how many calls the sequence returns; None where it does not."""
    for period in range(1, min(LONGEST_PERIOD, len(sequence) // LEAST_CALLS) + 1):
        if np.mean(sequence[period:] == sequence[:-period]) >= SAME:
            return period
    return None
