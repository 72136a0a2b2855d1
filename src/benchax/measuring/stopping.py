"""Decides when to stop: by precision, time or count. Also decides how many calls make one sample.

The rule looks at one stream of samples. No such rule can see a drift slower than the sampling itself, so there is a
least time as well. The result is only an interval for this run on this machine.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from benchax.errors import NotMeasured
from benchax.measuring.timers.base import PreparedTimer
from benchax.model import Measurement, Options, Stop
from benchax.stats.intervals import ENOUGH_RUNS
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
"""The most processes of a case, unless the user asks for more."""
SHORT_LOOK = 0.2
"""The share of `max_time_s` that all processes sample for together, 20 ms each by default. Two processes differ by more
than a longer look at one of them shows (docs/about/decisions.md)."""
SHORT_CALL_S = 0.1
SHORT_BUILD_S = 1.0
"""Longer cases take one process by default: a further one builds the programs again, or reads them from a file."""
WIDTHS = {"wall": 0.175, "pipelined": 0.175}
WIDTH = 0.075
"""Processes are added until half the width of a timer's interval is below this share of its median. Whole calls that
use XLA's threads scatter by 8 to 20 % between runs, and more processes don't narrow that."""
PRECISE = 0.01
"""Sampling inside a process stops when half the width of its own interval is below this share."""


def most_processes(requested: int, call_s: float, build_s: float | None, platform: str) -> int:
    """How many processes a case may take: the requested number, or for 0 ("auto") `PROCESSES` if the case is short.

    Raises:
        NotMeasured: nothing was requested, and the case takes one process.
    """
    if requested:
        return requested
    if platform != "cpu":
        raise NotMeasured(f"a process on {platform} takes the whole device; --processes {PROCESSES} asks for more")
    for what, taken_s, limit_s in (("a call", call_s, SHORT_CALL_S), ("building it", build_s or 0.0, SHORT_BUILD_S)):
        if taken_s > limit_s:
            raise NotMeasured(f"{what} takes {seconds(taken_s)}; --processes {PROCESSES} asks for more")
    return PROCESSES


def is_known_well(m: Measurement, timer: str, relative_width: float | None) -> bool:
    """Whether further processes would hardly change what is known of this timer.

    With enough earlier runs their range decides, and a value inside it needs no other process.

    Args:
        relative_width: half the width of the interval over the median, as requested; None for `WIDTHS`.
    """
    summary = m.find_summary(timer)
    if summary is None or summary.median_s <= 0:
        return True
    if len(summary.earlier_s) >= ENOUGH_RUNS:
        return summary.is_as_before
    wanted = WIDTHS.get(timer, WIDTH) if relative_width is None else relative_width
    return summary.scope == "run" and summary.relative_width is not None and summary.relative_width <= wanted


def share_time(options: Options, processes: int) -> Options:
    """The options of one of this many processes.

    If the user asked for processes, all together sample for as long as one would. Otherwise (`options.processes` is 0)
    they take `SHORT_LOOK` of that.
    """
    if processes == 1:
        return replace(options, processes=1)
    part = (1 if options.processes else SHORT_LOOK) / processes
    return replace(
        options,
        max_time_s=options.max_time_s * part,
        min_time_s=options.min_time_s * part,
        relative_width=(options.relative_width or PRECISE) * math.sqrt(processes),
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
    return "precise" if width is not None and width <= (options.relative_width or PRECISE) else None


def next_look(n: int) -> int:
    """After how many samples to look again."""
    return max(n + 1, math.ceil(n * LOOK_GROWTH))


def calibrate(prepared: PreparedTimer, sample_time_s: float, call_s: float = 0.0) -> int:
    """Calls per sample so that a sample lasts about `sample_time_s` times the timer's own length.

    The number grows from the smallest one according to the readings, at most tenfold a step. A reading that reaches the
    target can be a preemption. It counts when another reading reaches the target too, or when it is far beyond (slow
    calls are expensive).

    Args:
        call_s: seconds of a warm call, as far as known; if it is far beyond the target, no reading is needed.
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
