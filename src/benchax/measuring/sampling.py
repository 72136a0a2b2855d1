"""Takes samples from a prepared timer until stopping says enough. Every reading is kept.

Between two samples, outside their intervals, it reads how often the process was preempted: a disturbed sample is marked
and stays. Dropping disturbed ones makes the median worse, since for threaded programs nearly every sample is one.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise, repeat
from time import perf_counter_ns
from typing import Any

import jax

from benchax.case import ExactCalls
from benchax.errors import NotMeasured
from benchax.machine.noise import paused_gc, preemptions
from benchax.measuring.timers.base import PreparedTimer, refuse
from benchax.model import Measurement, Options, Samples, Stop
from benchax.stats.intervals import ENOUGH_RUNS
from benchax.stats.summary import summarize
from benchax.units import plural, seconds
from benchax.watching.compiles import watch_compiles

# ---- stopping --------------------------------------------------------------------------------------------------------
#
# Decides when to stop: by precision, time or count. Also decides how many calls make one sample.
#
# The rule looks at one stream of samples. No such rule can see a drift slower than the sampling itself, so there is a
# least time as well. The result is only an interval for this run on this machine.


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


STEADY = 0.9
"""Warm when a window's median is at least this share of the one before: it has stopped getting faster."""
WINDOW_NS = 5_000_000
LEAST_OF = 5
"""This many calls are enough to decide on which side of a limit a call is."""
FAR = 10
"""A call that takes this many times the limit is not preempted, but long."""
CALLING_S = 200e-6
"""More than calling costs on a CPU (5 to 100 µs): a call that takes longer has work to do, or arrays to allocate."""
CHECK_NS = 20_000_000
"""The time for which samples are taken without a check of the time limit. A check costs as much as a reading, and a
timer that takes several samples at once copies its inputs each time."""


def collect(
    timer: str,
    prepared: PreparedTimer,
    options: Options,
    progress: Callable[[float], None],
    clock: Callable[[], int] = perf_counter_ns,
    call_s: float = 0.0,
    calls: int | None = None,
    taken_s: Sequence[float] = (),
) -> Samples:
    """Calibrates, then samples until precise, out of time, or enough.

    Args:
        progress: told the share of max_time_s that is spent, now and then, between samples.
        clock: nanoseconds; for the time limit only, the samples read their own.
        call_s: see `calibrate`.
        calls: this many in each sample, and no others.
        taken_s: seconds of single calls that count as samples, if a sample is one call.
    """
    # A full garbage collection takes 50 ms in a process with JAX, and would look like one slow sample.
    with paused_gc():
        sample_time_s = prepared.sample_time_s or options.sample_time_s
        iterations = calls or calibrate(prepared, sample_time_s, call_s)
        readings = [round(each_s * 1e9) for each_s in taken_s] if iterations == 1 else []
        taken = len(readings)
        switches = [preemptions()]
        look, batch, start = 1, 1, clock() - sum(readings)
        stop = decide(readings, sum(readings) / 1e9, options) if taken else None
        while stop is None:
            if prepared.take:
                readings += prepared.take(iterations, batch)
            else:
                _take(prepared.sample, iterations, batch, readings, switches)
            spent_s = (clock() - start) / 1e9
            if len(readings) >= look or spent_s >= options.max_time_s:
                stop = decide(readings, spent_s, options)
                look = min(max(len(readings) + 1, math.ceil(len(readings) * LOOK_GROWTH)), options.max_samples)
                progress(min(1.0, spent_s / options.max_time_s))
            # Looks before the minimum time decide nothing.
            until = look if spent_s >= options.min_time_s else options.max_samples
            # Estimate from the time that readings took, not from the last value. A value of `loop` is a difference,
            # which a preemption can make tiny or negative. Then 20,000 of them, two minutes, would be taken without a
            # look at the clock.
            each_s = max(spent_s / len(readings), 1e-9)
            left_s = max(0.0, options.max_time_s - spent_s)
            batch = max(1, min(until - len(readings), int(min(CHECK_NS * 1e-9, left_s) / each_s)))
    return Samples(
        timer=timer,
        iterations=iterations,
        elapsed_s=tuple(reading / 1e9 for reading in readings),
        # Samples that are taken inside one program leave no place between them to read preemptions, and nothing was
        # read around earlier calls.
        disturbed=None
        if prepared.take or taken or switches[0] is None
        else tuple(after != before for before, after in pairwise(switches)),
        resolution_s=prepared.resolution_s(),
        overhead_s=prepared.overhead_s(iterations) if prepared.overhead_s else None,
        clock_tier=prepared.clock_tier,
        regime=prepared.regime,
        census=prepared.census,
        stop=stop,
    )


def _take(
    sample: Callable[[int], int], iterations: int, batch: int, readings: list[int], switches: list[int | None]
) -> None:
    """The measured loop: a reading, and how often the process has been preempted up to then."""
    # Unlike `range`, `repeat(None, n)` creates no number for each round. `timeit` loops in the same way.
    for _ in repeat(None, batch):
        readings.append(sample(iterations))
        switches.append(preemptions())


def reject_implausible(samples: Samples, call_s: float = 0.0) -> Samples:
    """Returns `samples` if they are plausible. They are not in three cases. Their interval reaches down to zero (a
    difference of two readings that hardly differ). A difference has no interval. Or they are less than the subtracted
    cost.

    Args:
        call_s: the shortest observed call of the function; 0 if there was no call. If it is far above the usual cost of
            a call, a reading near zero says nothing about the function: its work is elsewhere.

    Raises:
        NotMeasured: they are implausible.
    """
    overhead_s = (samples.overhead_s or 0.0) / samples.iterations
    if overhead_s and samples.summary.median_s < overhead_s:  # `loop` reads no clock inside its program
        less = f"takes less than reading the clock does ({seconds(overhead_s, 2)})"
        # A call through Flax NNX spends most of its time in Python.
        where = "XLA moved work out of it, or the call spends its time in Python"
        is_slow = call_s > CALLING_S
        raise NotMeasured(
            f"its timed region {less}, and a call takes {seconds(call_s)}: {where}" if is_slow else f"it {less}"
        )
    low_s = samples.summary.low_s
    refuse(
        (
            samples.timer == "loop" and low_s is None,
            (
                f"its {plural(samples.summary.n, 'reading')} have no interval: they are too few, or the machine kept "
                "changing its pace; a difference of two readings says nothing without one"
            ),
        ),
        (
            low_s is not None and low_s <= 0,
            "its time is indistinguishable from zero: XLA removed the work, or noise dominates",
        ),
    )
    return samples


@dataclass(frozen=True)
class Warmup:
    """How warming up went. `last_s`: median of the last window; `least_s`: the least of `timed` calls;
    `long_calls_s`: the one call that took all the time for warming up."""

    calls: int
    is_steady: bool
    compiles: int
    last_s: float
    windows_s: tuple[float, ...] = field(default=())
    least_s: float = 0.0
    timed: int = 0
    long_calls_s: tuple[float, ...] = field(default=())


NO_WARMUP = Warmup(0, True, 0, 0.0)


def warm_up(
    ready: Callable[[], Callable[[], Any]],
    max_time_s: float,
    clock: Callable[[], int] = perf_counter_ns,
    first_s: float = 0.0,
) -> Warmup:
    """Calls until neither the compile watch nor the times show a change any more, or `max_time_s` is spent.

    A window is 5 calls, or one where a call takes more than 5 ms. Warm: two windows in a row without a compile, the
    second not faster than the first by more than a tenth.

    The first call never decides alone: it can take a hundred times as long as the next one. A function that takes
    `max_time_s` is called once here, and `Warmup.long_calls_s` has that call for the samples.

    Args:
        ready: makes a call and all that it needs, which is not timed.
        first_s: seconds of the last call before, if it compiled nothing. A slow one counts as the first window.
    """
    least = [round(first_s * 1e9)] if first_s else []
    windows = [first_s] if first_s * 1e9 > WINDOW_NS else []
    calls, size, start, compiled = 0, 5, clock(), 0
    while True:
        with watch_compiles() as log:
            times = [_one(ready(), clock)]
            size = 1 if times[0] > WINDOW_NS else size
            times += [_one(ready(), clock) for _ in range(size - 1)]
        calls += len(times)
        compiled += log.compiles
        least = [min(least + times)]
        windows.append(sorted(times)[len(times) // 2] / 1e9)
        is_steady = not log.was_asked and len(windows) > 1 and windows[-1] >= STEADY * windows[-2]
        if is_steady or (clock() - start) / 1e9 >= max_time_s:
            timed = calls + bool(first_s)
            long_calls_s = (windows[-1],) if calls == 1 and windows[-1] >= max_time_s and not log.was_asked else ()
            return Warmup(calls, is_steady, compiled, windows[-1], tuple(windows), least[0] / 1e9, timed, long_calls_s)


def warm_up_exactly(ready: Callable[[], Callable[[], Any]], exactly: ExactCalls, first_s: float) -> Warmup:
    """Makes exactly the requested calls, whatever their times. The first run, which took `first_s`, is one of them."""
    times_s = [first_s, *(_one(ready(), perf_counter_ns) / 1e9 for _ in range(exactly.warmup - 1))]
    # If nothing is to be warmed up, the first run is a sample.
    taken = (first_s,) if exactly.warmup == 0 and exactly.per_sample == 1 else ()
    return Warmup(exactly.warmup, True, 0, times_s[-1], least_s=min(times_s), timed=len(times_s), long_calls_s=taken)


def call_again(
    ready: Callable[[], Callable[[], Any]],
    warmup: Warmup,
    limit_s: float,
    clock: Callable[[], int] = perf_counter_ns,
) -> Warmup:
    """Returns `warmup` with a few more calls if its least call is not far above `limit_s`. On a busy machine, each of
    two or three calls can be preempted, and the choice of timers must not depend on that. None if it is below."""
    least_s, timed = warmup.least_s, warmup.timed
    # Bounded on both sides: a call far above the limit is expensive, and no preemption makes a short one ten times as
    # long.
    while timed < LEAST_OF and limit_s <= least_s < FAR * limit_s:
        least_s, timed = min(least_s, _one(ready(), clock) / 1e9), timed + 1
    return replace(warmup, calls=warmup.calls + timed - warmup.timed, least_s=least_s, timed=timed)


def _one(call: Callable[[], Any], clock: Callable[[], int]) -> int:
    start = clock()
    jax.block_until_ready(call())
    return clock() - start
