"""Times the device alone, run by run, from a recording by JAX's profiler (CPU and TPU) or CUPTI (NVIDIA).

The timer waits for each call. A reading is the time for which the operations of the run kept the device busy: their
union over all threads (`profiling/operations.py`). It excludes Python, dispatch, the hand-over to XLA's threads, gaps
between operations, and transfers. In contrast to `in_graph`, this timer runs the user's own program: donated, sharded,
multi-threaded, or made of several programs.

On CPU, recording an operation lengthens it by 0.2 to 0.5 µs. The total on this machine is measured once in a process
(`event_cost`) and subtracted. The timer refuses if this cost is more than 10 % of the reading. That happens below about
3 µs an operation, so also for scans with short steps. The first runs of each recording are cold and do not count.

The code for TPU and NVIDIA follows documents and source; no such device was available.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from statistics import median
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from benchax.errors import FormatError, NotAvailable, NotMeasured, UsageError
from benchax.machine.noise import timed
from benchax.measuring.program import first_line
from benchax.measuring.timers.base import PreparedTimer, Subject, refuse
from benchax.profiling import events
from benchax.profiling.operations import STATS, ProgramRun, device_runs
from benchax.profiling.profile import session
from benchax.units import percent, plural, seconds

MOST_SHARE = 0.10
"""The largest share of a reading that recording can take. Its cost is known to about a half (0.30 to 0.58 µs in loops,
where 0.45 is subtracted), so the rest is known to 5 %. With a share of 15 %, loops over constants read 0.91 of their
true time."""
MANY = 1000
"""Number of operations. Above it, recording takes so long that a hopeless case is not sampled first."""
SHORTEST_S = 1.5e-6
"""The shortest allowed sample. One run is one sample, whatever its length."""
RENEWED_BYTES = 256 * 2**20
MOST_CALLS = 1000
"""The most calls of one recording."""
ATTEMPTS = 5
WAKING_S = 5e-3
"""This time at the beginning of each recording does not count: the threads have slept since the last recording. If two
threads share the work, the second one starts late."""
RECORDING_S = 20e-3
"""Seconds of calls in a recording, at least: starting and ending one takes as long."""


def prepare(subject: Subject) -> PreparedTimer:
    """Raises `NotMeasured` with the reason if nothing can be recorded or read."""
    platform = jax.default_backend()
    if platform == "gpu":
        return prepare_kernels(subject)
    refuse(
        (platform not in ("cpu", "tpu"), f"there is no profiler for {platform} that tells the runs apart"),
        (
            not hasattr(jax.profiler, "ProfileOptions"),
            f"jax {jax.__version__} always records every call of Python; use 0.6.2 or newer",
        ),
    )
    return _prepared(subject, EventCost(0.0, 0.0) if platform == "tpu" else event_cost())


def _prepared(subject: Subject, cost: EventCost) -> PreparedTimer:
    recorded: list[ProgramRun] = []
    ahead: list[ProgramRun] = []

    def take(iterations: int, count: int) -> list[int]:
        wanted = iterations * count
        while len(ahead) < wanted:
            cold, enough = _lengths(subject, recorded)
            for part in _parts(subject, max(wanted - len(ahead), enough)):
                ahead.extend(whole_runs(subject, part, cold))
        runs, ahead[:] = ahead[:wanted], ahead[wanted:]
        recorded.extend(runs)
        return [round(sum(run.busy_s for run in runs[i::count]) * 1e9) for i in range(count)]

    def overhead_s(iterations: int) -> float:
        _check_share(cost, recorded)
        return iterations * median(cost.of(run) for run in recorded)

    jax.block_until_ready(subject.outputs)  # of an earlier call, whose run would show in the first recording
    take(1, 1)  # what cannot be recorded says so now
    if recorded[0].outer + recorded[0].inner > MANY:
        _check_share(cost, recorded)
    # The trial was cold, so it is not a sample. Its last run shows `_lengths` how many calls a recording needs.
    del recorded[:-1], ahead[:]
    return PreparedTimer(
        sample=lambda n: sum(take(1, n)),
        take=take,
        overhead_s=overhead_s,
        regime=subject.regime,
        most_iterations=1,
        sample_time_s=SHORTEST_S,
    )


def _lengths(subject: Subject, recorded: list[ProgramRun]) -> tuple[int, int]:
    """(calls that wake the threads, calls of a recording)"""
    if not recorded or (subject.needs_renewal and not subject.feedback):  # each would need inputs of its own
        return 1, 1
    busy_s = max(recorded[-1].busy_s, 1e-6)
    return min(MOST_CALLS, 1 + round(WAKING_S / busy_s)), min(MOST_CALLS, 1 + round(RECORDING_S / busy_s))


def _parts(subject: Subject, calls: int) -> list[int]:
    """`calls` in parts whose inputs, renewed for each call where they are donated, are not too many at once."""
    copies = RENEWED_BYTES // max(1, subject.input_bytes) if subject.needs_renewal else MOST_CALLS
    each = subject.feedback.most_calls - 1 if subject.feedback else 1
    most = max(1, min(copies * each, MOST_CALLS))
    return [min(most, calls - begin) for begin in range(0, calls, most)]


def _check_share(cost: EventCost, recorded: list[ProgramRun]) -> None:
    busy_s = median(run.busy_s for run in recorded)
    share = median(cost.of(run) for run in recorded) / busy_s
    if share > MOST_SHARE:
        n = recorded[-1].outer + recorded[-1].inner
        part = f"about {percent(share)}" if share < 0.9 else "nearly all"
        raise NotMeasured(
            f"recording its {plural(n, 'operation')} takes {part} of the {seconds(busy_s)} that were recorded"
        )


def whole_runs(subject: Subject, calls: int, cold: int = 1) -> list[ProgramRun]:
    """Returns one run for each of that many calls, after `cold` other runs. If a call runs several programs, one run
    holds all of them.

    Raises:
        NotMeasured: they could not be recorded, or not be separated.
    """
    found: list[ProgramRun] = []
    for attempt in range(ATTEMPTS):
        # A recording can miss the end of the last call, so from the second attempt on it has one more.
        runs = _recorded_calls(subject, cold + calls - len(found) + bool(attempt))[cold:]
        found += [run for run in runs if run.is_whole]
        if len(found) >= calls:
            return found[:calls]
    raise NotMeasured(f"in {ATTEMPTS} recordings the profiler did not say when each operation ended")


def _recorded_calls(subject: Subject, calls: int) -> list[ProgramRun]:
    # Copy the inputs before the recording, in which the copies would look like runs of programs.
    each = subject.feedback.most_calls - 1 if subject.feedback else calls
    prepared = [call for begin in range(0, calls, each) for call in subject.row(min(each, calls - begin))]

    def work() -> None:
        for call in prepared:
            jax.block_until_ready(call())

    runs = _runs(work)
    if not runs:
        raise NotMeasured("the profiler recorded no operation of a compiled program")
    each, left = divmod(len(runs), calls)
    if left:
        raise NotMeasured(
            f"the trace holds {len(runs)} runs of compiled programs for {calls} calls: something else ran as well, "
            "or not all was recorded"
        )
    return [_together(runs[i * each : (i + 1) * each]) for i in range(calls)]


def _runs(work: Callable[[], None]) -> list[ProgramRun]:
    """Returns the runs of a recording of `work`. If recording or reading it fails, raises the reason."""
    try:
        with session() as recording:
            work()
        return device_runs(events.read(recording.xspace, STATS))
    except (UsageError, NotAvailable, FormatError) as error:
        raise NotMeasured(error.problem) from error


def _together(runs: list[ProgramRun]) -> ProgramRun:
    start_ps, busy_s, outer, inner, is_whole = zip(*runs, strict=True)
    return ProgramRun(min(start_ps), sum(busy_s), sum(outer), sum(inner), all(is_whole))


class EventCost(NamedTuple):
    """The time that recording one operation adds to the reading of its run."""

    outer_s: float
    """For an operation alone: the part of the cost that falls inside its own interval."""
    inner_s: float
    """Where it runs inside a loop, whose interval contains all of the cost."""

    def of(self, run: ProgramRun) -> float:
        return self.outer_s * run.outer + self.inner_s * run.inner


TURNS = 300
"""The iterations of the loop that measures the cost inside a loop."""


@lru_cache(maxsize=1)
def event_cost() -> EventCost:
    """Measures the cost on this machine with operations that do almost nothing: alone, and in a loop with and without
    recording.

    Takes the least of many readings, since disturbances can only lengthen them.

    Raises:
        NotMeasured: nothing can be recorded.
    """
    add = jax.jit(lambda x: x + 1)
    # A sort, because XLA:CPU compiles a loop of simple operations on small arrays (jax 0.12: on arrays of any size)
    # into one machine function, in which nothing is recorded.
    sort = jax.jit(lambda x: jax.lax.fori_loop(0, TURNS, lambda _, y: jnp.sort(y) + 1, x))
    alone, loop = _waiting(add, jnp.float32(1)), _waiting(sort, jnp.ones(2))
    # Measured by the clock of the recording itself: subtract the apparent time of an empty operation.
    outer_s = min(run.busy_s for run in _recorded(alone, 50)[0])
    plain_s = min(timed(loop)[1] for _ in range(20))
    runs, timed_s = _recorded(loop, 20)
    if not runs[-1].inner:
        raise NotMeasured("the profiler recorded no operation inside a loop: what that costs is not known")
    return EventCost(outer_s, max(outer_s, (min(timed_s) - plain_s) / runs[-1].inner))


def _waiting(compiled: Callable[[Any], Any], x: Any) -> Callable[[], Any]:
    return lambda: jax.block_until_ready(compiled(x))


def _recorded(call: Callable[[], Any], times: int) -> tuple[list[ProgramRun], list[float]]:
    """(runs, seconds of each call); the first, a cold one, is left out."""
    call()
    timed_s: list[float] = []
    runs = _runs(lambda: timed_s.extend(timed(call)[1] for _ in range(times + 1)))
    if len(runs) != times + 1:
        raise NotMeasured(f"the profiler recorded {len(runs)} of {times + 1} runs of its test program")
    return runs[1:], timed_s[1:]


# ---- cupti -----------------------------------------------------------------------------------------------------------
#
# Device time on NVIDIA: the sum of a call's kernels, as CUPTI times them on the GPU.
#
# By `jax.experimental.mosaic.gpu.profiler.Cupti`, the timer that JAX brings. It is experimental and has changed often
# (0.4.35, 0.5, 0.6, 0.7.2), so its signature is looked at first. Written from the source of jax 0.7.2 to 0.12.0.1 and
# tried with jax 0.11.2 on an H100: `docs/verified/`.
#
# Includes kernels only: no copies, no gaps; what ran side by side on several streams counts twice. The calls follow one
# another on the same inputs, so that what fits into the L2 cache is found there.


REGIME = "kernels, L2 warm"
ROUNDING_NS = 4
"""Smaller differences are not steps of the clock, but the rounding of its steps."""


def prepare_kernels(subject: Subject) -> PreparedTimer:
    """Raises `NotMeasured` with the reason where CUPTI cannot serve."""
    repeats = "and CUPTI's timer repeats the call on the same ones"
    is_jitted = subject.program.kind in ("plain", "jit", "compiled")
    refuse(
        (subject.inputs.is_stateful, f"it changes its arguments, {repeats}"),
        (subject.donates, f"it donates its arguments, {repeats}"),
        (not is_jitted, "CUPTI's timer of JAX takes jitted and compiled functions only"),
    )
    measure = _measure()

    seen_ns: set[int] = set()

    def take(iterations: int, count: int) -> list[int]:
        times_ns = _kernels(measure, subject, iterations * count)
        seen_ns.update(times_ns)
        return [sum(times_ns[i::count]) for i in range(count)]

    take(1, 1)  # what cannot be timed says so now
    return PreparedTimer(
        sample=lambda n: sum(take(1, n)),
        take=take,
        regime=REGIME,
        most_iterations=1,
        resolution_s=lambda: _step_s(seen_ns),
    )


def _step_s(seen_ns: set[int]) -> float | None:
    """The least difference of two readings: the clock of an H100 steps by 32 ns, give or take one."""
    steps = (after - before for before, after in pairwise(sorted(seen_ns)))
    return min((step for step in steps if step > ROUNDING_NS), default=0) / 1e9 or None


def _measure() -> Callable[..., Any]:
    """`Cupti.measure`, if it is there and takes what we give it."""
    try:
        # Import it only now: on other platforms it can fail, and it takes 0.2 s.
        made = importlib.import_module("jax.experimental.mosaic.gpu.profiler").Cupti
        known = {*inspect.signature(made).parameters, *inspect.signature(made.measure).parameters}
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise NotMeasured(f"this jax has no timer by CUPTI ({type(error).__name__}: {error})") from error
    if missing := {"finalize", "aggregate", "iterations"} - known:
        raise NotMeasured(f"the timer by CUPTI of this jax knows no {', '.join(sorted(missing))}; 0.7.2 or newer does")
    # finalize=True would end CUPTI for the whole process after the first measurement.
    return made(finalize=False).measure


def _kernels(measure: Callable[..., Any], subject: Subject, calls: int) -> list[int]:
    """Nanoseconds of each call's kernels."""
    args, kwargs = subject.inputs.args, subject.inputs.kwargs
    try:
        _, times_ms = measure(subject.program.call, aggregate=True, iterations=calls)(*args, **kwargs)
    except RuntimeError as error:  # no right to use CUPTI, another profiler, calls that ran different kernels
        raise NotMeasured(f"CUPTI: {first_line(error)}") from error
    if times_ms is None:
        raise NotMeasured("it ran no kernel on the GPU")
    each_ms = times_ms if isinstance(times_ms, list) else [times_ms]
    if len(each_ms) != calls:
        raise NotMeasured(f"CUPTI reported the times of {len(each_ms)} calls out of {calls}")
    return [round(ms * 1e6) for ms in each_ms]
