"""How long the steps of a loop take while nothing is recorded, without a hook in the loop.

An event costs 0.1 to 3 µs on CPU, so a step of many short operations takes several times as long during a recording.
For example, a step of 0.12 ms with 1,800 events took 0.40 to 0.70 ms. XLA numbers the runs of each program
consecutively. So two recordings of a few milliseconds show how many runs there were between them, while nothing was
recorded. A clock measures how long that took.

The numbers are consecutive on CPU with jax 0.8.3 to 0.12.0; on GPU a trace has no numbers. If a recording shows that
the numbers are not consecutive, benchax reports no pace.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns

import jax
import numpy as np

from benchax.errors import NotMeasured
from benchax.profiling.events import read
from benchax.profiling.operations import HOST, KEEP, TPU_RUNS, Operations, operations
from benchax.profiling.space import Space
from benchax.protobuf import Ints

CLOCK = "benchax clock: "
WINDOWS = 3
"""The largest number of windows. The middle result counts, because an evaluation, or a neighbour on the machine, can
spoil one window."""
WINDOW_STEPS, WINDOW_GLANCES, SHORTEST_S, LONGEST_S = 5, 10, 0.2, 5.0
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
            wait(min(max(WINDOW_STEPS * step_s, WINDOW_GLANCES * taken_s, SHORTEST_S), LONGEST_S))
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
        NotMeasured: they are not consecutive, or several programs have that name.
    """
    space = read(xspace, KEEP)
    found = operations(space, {}, TPU_RUNS)
    names = np.array([found.word(code) for code in range(-1, len(found.texts))]) == program
    chosen = np.flatnonzero(names[found.module + 1] & found.has_run) if len(found) else np.zeros(0, np.int64)
    if not len(chosen):
        return None
    if len(np.unique(found.program[chosen])) > 1:
        raise NotMeasured(f"there are several programs {program}, each with numbers of its own")
    numbers, begin_ps = _begins(found, chosen)
    if (np.diff(numbers) != 1).any():
        raise NotMeasured(f"the runs of {program} are not numbered in a row by jax {jax.__version__}")
    zero_ns = _zero_ns(space)
    return RunNumbers(int(numbers[0]), zero_ns + begin_ps[0] / 1e3, int(numbers[-1]), zero_ns + begin_ps[-1] / 1e3)


def _begins(found: Operations, chosen: Ints) -> tuple[Ints, Ints]:
    """(numbers of runs, when each began), in the order of the numbers."""
    numbers, which = np.unique(found.run[chosen], return_inverse=True)
    begin = np.full(len(numbers), np.iinfo(np.int64).max)
    np.minimum.at(begin, which, found.start_ps[chosen])
    return numbers, begin


def _zero_ns(space: Space) -> float:
    """When the trace began, on `perf_counter_ns`."""
    plane = space.plane(HOST)
    for line in plane.lines if plane else ():
        for i in np.unique(line.name_id).tolist():
            if line.names.get(i, "").startswith(CLOCK):
                at_ps = int(line.start_ps[line.name_id == i][0])
                return int(line.names[i].removeprefix(CLOCK)) - at_ps / 1e3
    raise NotMeasured("the trace does not say when it was recorded")


def _between(before: RunNumbers, after: RunNumbers) -> float:
    """Nanoseconds a run, from the last one of one recording to the first one of the next."""
    runs = after.first - before.last
    if runs < LEAST_RUNS:
        raise NotMeasured(f"there were too few runs to be counted: {max(runs, 0)}")
    return (after.first_ns - before.last_ns) / runs
