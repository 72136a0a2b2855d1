"""When enough is enough: precision, time or count, and how many calls make one sample.

The rule looks at one stream of samples. No such rule can see a drift slower than the sampling itself, so there is a
least time as well, and what is claimed is an interval for this run on this machine.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchax.measuring.timers.base import Prepared
from benchax.model import Options, Stop
from benchax.stats.summary import summarize

LEAST_SAMPLES = 6
"""Fewer have no 95 % interval of the median."""
PATIENCE = 5
"""Slow functions may take this many times max_time_s to reach LEAST_SAMPLES."""
LOOK_GROWTH = 1.6
"""Looks come after geometrically growing counts: their cost stays a fixed share, and few looks cost little coverage."""
NEAR = 0.8
"""A sample of this share of the length that is asked for is long enough: another step would cost two more samples."""


def decide(readings: Sequence[float], spent_s: float, options: Options) -> Stop | None:
    """Why to stop now, or None to go on.

    Args:
        readings: one per sample, in the order taken, in any unit.
        spent_s: since sampling began.
        options: resolved.
    """
    n = len(readings)
    if n >= options.max_samples:
        return "count"
    if spent_s >= options.max_time_s and (n >= LEAST_SAMPLES or spent_s >= PATIENCE * options.max_time_s):
        return "time"
    if n < LEAST_SAMPLES or spent_s < options.min_time_s:
        return None
    width = summarize(readings).relative_width
    return "precise" if width is not None and width <= options.relative_width else None


def next_look(n: int) -> int:
    """After how many samples to look again."""
    return max(n + 1, math.ceil(n * LOOK_GROWTH))


def calibrate(prepared: Prepared, sample_time_s: float, call_s: float = 0.0) -> int:
    """Calls per sample so that a sample lasts about `sample_time_s` times the timer's own length.

    Grows from the least number by what the readings say, at most tenfold a step. A reading that reaches the target
    may be a preemption: it is believed when another reaches it too, or when it is far beyond (slow calls are dear).

    Args:
        call_s: seconds of a warm call, as far as known; where it is far beyond, nothing needs to be read.
    """
    target_ns = sample_time_s * prepared.length * 1e9
    n = prepared.least_iterations
    is_slow = call_s * n * 1e9 > 10 * target_ns
    while n < prepared.most_iterations and not is_slow:
        reading = prepared.sample(n)
        if NEAR * target_ns <= reading <= 10 * target_ns:
            reading = min(reading, prepared.sample(n))
        if reading >= NEAR * target_ns:
            break
        growth = min(10.0, max(1.25, target_ns / max(reading, 1)))
        n = min(prepared.most_iterations, math.ceil(n * growth))
    return n
