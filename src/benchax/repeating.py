"""Finds repetitions in a sequence of calls: the rounds of a loop. A round can call the same thing several times."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

LEAST_CALLS = 3
"""Two calls may be anything; three make two steps of the same kind."""
LONGEST_PERIOD = 64
SAME = 0.8
"""The share of a sequence that must repeat after a period: reports and checkpoints come in between."""
LONGEST_HISTORY = 8
LAST, LAST_CALLS = 0.2, 1.5
"""The last call of a step can be this far before the end, as a share of the whole, or as a number of steps."""

Ints = NDArray[np.int64]


def goes_on(at: Ints, begin: int, end: int) -> bool:
    """Is something still being called at the end? `at` says when it is called between the two times, in order.

    A function that is called only at the beginning is no step of a loop that is still running.
    """
    if len(at) < LEAST_CALLS:
        return False
    return end - int(at[-1]) <= max(LAST * (end - begin), LAST_CALLS * float(np.median(np.diff(at))))


def once_a_round(sequence: Ints, at: Ints) -> Ints:
    """Chooses the calls of `at` that begin a round of the sequence; all of them if each round has one."""
    period = _period(sequence)
    if period is None:
        return at
    in_round = len(at) / (len(sequence) / period)
    if in_round < 1.5:
        return at
    # An evaluation every ten iterations comes in between. It is not part of the history of a call.
    rounds = len(sequence) / period
    is_usual = np.bincount(sequence)[sequence] >= rounds / 2
    usual, places = sequence[is_usual], (np.cumsum(is_usual) - 1)[at]
    for length in range(1, LONGEST_HISTORY + 1):
        histories = [tuple(usual[max(0, i - length) : i].tolist()) for i in places.tolist()]
        counts = Counter(histories)
        once = [h for h, n in counts.items() if abs(n * in_round / len(at) - 1) < 1 - SAME]
        if once:
            return at[_with_first(np.flatnonzero([h == once[0] for h in histories]))]
    return at


def _with_first(chosen: Ints) -> Ints:
    """The first round has another history: it is one where as many calls as in the others follow."""
    if len(chosen) > 1 and chosen[0] == Counter(np.diff(chosen).tolist()).most_common(1)[0][0]:
        return np.concatenate([[0], chosen])
    return chosen


def _period(sequence: Ints) -> int | None:
    """After how many calls the sequence returns; None if it does not."""
    for period in range(1, min(LONGEST_PERIOD, len(sequence) // LEAST_CALLS) + 1):
        if np.mean(sequence[period:] == sequence[:-period]) >= SAME:
            return period
    return None
