"""When enough is enough: precision, time or count, and how many calls make one sample.

The rule looks at one stream of samples. No such rule can see a drift slower than the sampling itself, so there is a
least time as well, and what is claimed is an interval for this run on this machine.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from benchax.errors import NotMeasured
from benchax.measuring.timers.base import PreparedTimer
from benchax.model import Options, Stop
from benchax.stats.summary import summarize
from benchax.units import seconds

LEAST_SAMPLES = 6
"""Fewer have no 95 % interval of the median."""
PATIENCE = 5
"""Slow functions may take this many times max_time_s to reach LEAST_SAMPLES."""
LOOK_GROWTH = 1.6
"""Looks come after geometrically growing counts: their cost stays a fixed share, and few looks cost little coverage."""
NEAR = 0.8
"""A sample of this share of the length that is asked for is long enough: another step would cost two more samples."""


PROCESSES = 5
"""By default, where a case is short: Student's quantile is 2.8 then, and more processes buy little for what they cost
(docs/about/decisions.md)."""
SHORT_LOOK = 0.2
"""20 ms for each of five processes by default, over a hundred samples: they scatter by 2 to 5 %, which readings of one
of them for five times as long do not tell (docs/about/decisions.md)."""
SHORT_CALL_S = 10e-3
SHORT_BUILD_S = 1.0
"""A further process builds the programs again, or reads them from a file; the first of them always builds."""


def count_processes(asked: int, call_s: float, build_s: float | None, platform: str) -> int:
    """How many processes are to be sampled: as many as asked for, or `PROCESSES` for 0 where the case is short.

    Raises:
        NotMeasured: nobody asked for a number, and one process is all there will be.
    """
    if asked:
        return asked
    if platform != "cpu":
        raise NotMeasured(f"a process on {platform} takes the device for itself; ask by --processes {PROCESSES}")
    for what, taken_s, limit_s in (
        ("a call takes", call_s, SHORT_CALL_S),
        ("to build it takes", build_s or 0.0, SHORT_BUILD_S),
    ):
        if taken_s > limit_s:
            raise NotMeasured(
                f"{what} {seconds(taken_s)}, above {seconds(limit_s)}, so one was enough unless asked; "
                f"--processes {PROCESSES}"
            )
    return PROCESSES


def share_time(options: Options, processes: int) -> Options:
    """What one of so many processes gets.

    Where they were asked for, all together sample for as long as one would, and know the median as well as one would:
    each of them less well, by the root of their number. Where nobody asked (`options.processes` is 0) they take
    `SHORT_LOOK` of that: what processes differ by is seen by having several, and not by looking at each for longer.
    """
    part = 1 / processes if options.processes or processes == 1 else SHORT_LOOK / processes
    return replace(
        options,
        max_time_s=options.max_time_s * part,
        min_time_s=options.min_time_s * part,
        relative_width=options.relative_width * math.sqrt(processes),
        processes=1,
    )


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


def calibrate(prepared: PreparedTimer, sample_time_s: float, call_s: float = 0.0) -> int:
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
