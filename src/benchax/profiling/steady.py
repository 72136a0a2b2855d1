"""Whether a recording has seen enough of a loop that runs steadily, how long another one should be, and what it costs.

A program that begins by loading data shows only its initialisation at first. So a recording ends when its time is over,
and benchax checks it while the program runs. Another recording follows if the same program was not called often enough,
or was no longer being called at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from time import perf_counter_ns

import jax
import numpy as np
import psutil

from benchax.errors import NotMeasured
from benchax.profiling.compiled_modules import programs
from benchax.profiling.events import Space, read
from benchax.profiling.host_thread import read_host_thread
from benchax.profiling.marks import read_compile_marks
from benchax.profiling.operations import KEEP, TPU_RUNS, Operations, operations
from benchax.profiling.runs import PS, on_busiest_device, runs_by_device
from benchax.profiling.step_bounds import busiest_programs, find_steps
from benchax.repeating import LEAST_CALLS
from benchax.results.profile import Run

LONGEST_S = 60.0
"""No recording of several is longer, so that steps of ten minutes are seen in part."""
PATIENCE_S = 1800.0
"""Recording ends after this time without steps."""
MOST_EVENTS = 1_000_000
"""benchax can read this many events in seconds, and Perfetto can open them."""
STILL = 0.2
"""The last step can begin up to this share of the recording before its end, or up to this number of steps:"""
STILL_STEPS = 3


@dataclass(frozen=True)
class SeenSteps:
    """The steps of a loop in a recording."""

    count: int
    """Whole steps, the first one among them; 0 where the loop was over before the recording was."""
    length_s: float | None
    """The median. None: no two beginnings were seen."""
    n_events: int
    worked_s: float = 0.0
    """The time that the busiest device worked from the first step on, also for a loop that is over."""
    in_all_s: float = 0.0
    """The time that it worked in the whole recording. 0: no compiled program ran."""
    program: str = ""
    """The one that it was busy with most. Empty: no steps, or the runs of programs are not known, as on GPU."""
    runs_per_step: float = 0.0
    """Runs of that program per step."""
    events_per_s: float = 0.0
    """While there were steps."""


def look(xspace: bytes) -> SeenSteps:
    """Counts the steps of a trace.

    Raises:
        FormatError: it cannot be read.
    """
    space = read(xspace, KEEP)
    known = programs(space)
    found = operations(space, known)
    if not len(found):
        return SeenSteps(0, None, space.n_events)
    runs = runs_by_device(space, found, known)
    in_all_s = _worked_s(found, runs)
    begin = find_steps(space, read_host_thread(space, list(read_compile_marks(space))), runs).begin_ps
    if not len(begin):
        return SeenSteps(0, None, space.n_events, in_all_s=in_all_s)
    length = float(np.median(np.diff(begin)))
    lines = [line for plane in space.planes for line in plane.lines if len(line)]
    over = max(int(line.start_ps[-1]) for line in lines)
    start = min(int(line.start_ps.min()) for line in lines)
    is_still = over - begin[-1] <= max(STILL_STEPS * length, STILL * (over - start))
    worked_s = _worked_s(found, runs, int(begin[0]))
    seen = SeenSteps(len(begin) - 1 if is_still else 0, length / PS, space.n_events, worked_s, in_all_s)
    steps = begin[1:] if len(begin) > LEAST_CALLS else begin
    program, often = (busiest_programs(runs, steps[0], steps[-1]) or [("", 0)])[0]
    events = space.count_events(int(steps[0]), int(steps[-1]))
    return replace(
        seen,
        program=program,
        runs_per_step=often / (len(steps) - 1),
        events_per_s=events * PS / float(steps[-1] - steps[0]),
    )


def _worked_s(found: Operations, runs: Sequence[Run], since_ps: int = 0) -> float:
    """How long the device worked that works most; on GPU, where runs are not known, the sum over operations."""
    if runs:
        return sum(run.device_s for run in on_busiest_device(runs) if run.start_s * PS >= since_ps)
    return float((found.end_ps - found.start_ps)[found.start_ps >= since_ps].sum()) / PS


def next_duration(seen: SeenSteps, recorded_s: float, in_all_s: float, least_steps: int) -> float | None:
    """How long the next recording should be; None where this one is enough, or more would not help."""
    if seen.count >= least_steps or in_all_s >= PATIENCE_S or (seen.count >= 2 and recorded_s >= LONGEST_S):
        return None
    wanted = 2 * recorded_s if seen.length_s is None or not seen.count else seen.length_s * (least_steps + 2)
    readable = recorded_s * MOST_EVENTS / max(seen.n_events, 1)
    found = min(max(wanted, recorded_s), LONGEST_S, readable)
    # Where events come so fast that a longer recording could not be read, there is no better one than this.
    return None if seen.count and found < recorded_s * 1.5 else found


# ---- how far a recording grows ----------------------------------------------------------------------------------
#
# JAX does not report the number of events until it has written the recording. Until then, an event takes 126 bytes (jax
# 0.10.2). A quarter of a million events can hold enough steps of a loop, and take 2 s to write. benchax can read at
# most 1.3 million. With steps of 5 µs, a recording of 5 s took 6 GB and a minute.

FIRST_GROWTH, MOST_GROWTH = 32 << 20, 160 << 20
"""Bytes after which a recording is looked at: the first one, and a later one if that did not hold enough steps."""
FIRST_EVENTS = 50_000
"""With fewer it was the program itself that has grown."""
LEAST_GROWTH, STEADILY = 2 << 20, 3
"""Events come steadily if each of this many checks finds at least this much more memory. A program itself grows in
leaps."""
GROWN = 2 * FIRST_GROWTH
"""At least, before a program is looked at again that has grown by itself, as it may do so again."""


class RecordingGrowth:
    """Tracks the recordings of this process, one after another."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._before = self._growth = self._steadily = 0
        self._limit: int | None = None

    def begin(self) -> None:
        """A recording begins; or JAX has compiled something, and what a compiler takes are no events."""
        self._before = self._process.memory_info().rss
        self._growth = self._steadily = 0

    def is_enough(self) -> bool:
        """To be asked every now and then, while nothing is compiled."""
        earlier, self._growth = self._growth, self._process.memory_info().rss - self._before
        self._steadily = self._steadily + 1 if self._growth - earlier >= LEAST_GROWTH else 0
        is_large = self._growth >= MOST_GROWTH or self._steadily >= STEADILY
        return is_large and self._growth >= (FIRST_GROWTH if self._limit is None else self._limit)

    def is_of_events(self, n_events: int) -> bool:
        """Was it, in a recording that was ended for it? How far the next one may grow depends on it."""
        found = n_events >= FIRST_EVENTS
        self._limit = MOST_GROWTH if found else max(GROWN, 2 * self._growth)
        return found


# ---- the pace while nothing is recorded -------------------------------------------------------------------------
#
# An event costs 0.1 to 3 µs on CPU, so a step of many short operations takes several times as long during a recording.
# For example, a step of 0.12 ms with 1,800 events took 0.40 to 0.70 ms. XLA numbers the runs of each program
# consecutively. So two recordings of a few milliseconds show how many runs there were between them, while nothing was
# recorded. A clock measures how long that took.
#
# The numbers are consecutive on CPU with jax 0.8.3 to 0.12.0; on GPU a trace has no numbers. If a recording shows that
# the numbers are not consecutive, benchax reports no pace.

CLOCK = "benchax clock: "
WINDOWS = 3
"""The largest number of windows. The middle result counts, because an evaluation, or a neighbour on the machine, can
spoil one window."""
WINDOW_STEPS, WINDOW_GLANCES, LEAST_WINDOW_S, MOST_WINDOW_S = 5, 10, 0.2, 5.0
"""The length of a window: this many steps, but also this many times the duration of the recordings at its ends. Those
recordings slow the program down. The last two are the least and most seconds of a window."""
LEAST_RUNS = 2
GLANCE_S = 2e-3
"""The least duration of a recording between two windows; otherwise it takes two steps."""
GLANCES = 4
"""Each twice as long as the one before, until a run is in one."""


@dataclass(frozen=True)
class RunNumbers:
    """The first and the last run of a program in one recording, and when they began, on `perf_counter_ns`."""

    first: int
    first_ns: float
    last: int
    last_ns: float


def mark_clock() -> None:
    """Leaves the time in the trace that is being recorded."""
    with jax.profiler.TraceAnnotation(f"{CLOCK}{perf_counter_ns()}"):
        pass


def measure_plain_pace(
    program: str, step_s: float, record: Callable[[float], bytes], wait: Callable[[float], None]
) -> float:
    """Returns the seconds from one run of a program to the next while nothing is recorded.

    Args:
        program: its name, such as jit_step.
        step_s: the time between its runs during a recording.
        record: records for the given seconds, with `mark_clock`, and returns the trace.
        wait: waits for the given seconds.

    Raises:
        NotMeasured: the program no longer runs, or its run numbers are not consecutive.
    """
    began_ns = perf_counter_ns()
    before = _glance(program, step_s, record)
    taken_s = (perf_counter_ns() - began_ns) / 1e9
    found_ns: list[float] = []
    try:
        for _ in range(WINDOWS):
            wait(min(max(WINDOW_STEPS * step_s, WINDOW_GLANCES * taken_s, LEAST_WINDOW_S), MOST_WINDOW_S))
            after = _glance(program, step_s, record)
            found_ns.append(_between(before, after))
            before = after
    except NotMeasured:
        if not found_ns:  # else the loop has ended in a later window
            raise
    return median(found_ns) / 1e9


def _glance(program: str, step_s: float, record: Callable[[float], bytes]) -> RunNumbers:
    for attempt in range(GLANCES):
        found = read_run_numbers(record(max(GLANCE_S, 2 * step_s) * 2**attempt), program)
        if found is not None:
            return found
    raise NotMeasured(f"{program} was not run any more")


def read_run_numbers(xspace: bytes, program: str) -> RunNumbers | None:
    """Returns the run numbers of one program in a trace, or None if it did not run.

    Raises:
        NotMeasured: they are not consecutive, as if several programs had that name.
    """
    space = read(xspace, KEEP)
    runs = on_busiest_device(runs_by_device(space, operations(space, {}, TPU_RUNS), {}))
    mine = sorted((run for run in runs if run.module == program), key=lambda run: run.run_id)
    if not mine:
        return None
    if any(later.run_id != run.run_id + 1 for run, later in pairwise(mine)):
        raise NotMeasured(f"the runs of {program} are not numbered in a row by jax {jax.__version__}")
    zero_ns, first, last = _zero_ns(space), mine[0], mine[-1]
    return RunNumbers(first.run_id, zero_ns + first.start_s * 1e9, last.run_id, zero_ns + last.start_s * 1e9)


def _zero_ns(space: Space) -> float:
    """When the trace began, on `perf_counter_ns`."""
    for line in space.host_lines:
        for at in line.find(lambda name: name.startswith(CLOCK)).tolist():
            return int(line.names[int(line.name_id[at])].removeprefix(CLOCK)) - int(line.start_ps[at]) / 1e3
    raise NotMeasured("the trace does not say when it was recorded")


def _between(before: RunNumbers, after: RunNumbers) -> float:
    """Nanoseconds a run, from the last one of one recording to the first one of the next."""
    runs = after.first - before.last
    if runs < LEAST_RUNS:
        raise NotMeasured(f"there were too few runs to be counted: {max(runs, 0)}")
    return (after.first_ns - before.last_ns) / runs
