"""Whether a recording has seen enough of a loop that runs steadily, or how long another recording should be.

A program that begins by loading data shows only its initialisation at first. So a recording ends when its time is over,
and benchax checks it while the program runs. Another recording follows if the same program was not called often enough,
or was no longer being called at the end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchax.profiling.compiled_modules import programs
from benchax.profiling.events import read
from benchax.profiling.host_thread import read_compile_marks, read_host_thread
from benchax.profiling.operations import KEEP, Operations, operations
from benchax.profiling.runs import PS, on_busiest_device, runs_by_device
from benchax.profiling.space import count_events
from benchax.profiling.step_bounds import find_steps
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
    begin = find_steps(space, read_host_thread(space, read_compile_marks(space)), runs).begin_ps
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
    program, often = _most_run(runs, int(steps[0]), int(steps[-1]))
    events = count_events(space, int(steps[0]), int(steps[-1]))
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


def _most_run(runs: Sequence[Run], begin_ps: int, end_ps: int) -> tuple[str, int]:
    """(the program that this device was busy with most, how often it was run)"""
    spent, count = Counter[str](), Counter[str]()
    for run in on_busiest_device(runs):
        if begin_ps <= run.start_s * PS < end_ps:
            spent[run.module] += int(run.device_s * PS)
            count[run.module] += 1
    name = max(spent, key=lambda one: spent[one], default="")
    return name, count[name]


def next_duration(seen: SeenSteps, recorded_s: float, in_all_s: float, least_steps: int) -> float | None:
    """How long the next recording should be; None where this one is enough, or more would not help."""
    if seen.count >= least_steps or in_all_s >= PATIENCE_S or (seen.count >= 2 and recorded_s >= LONGEST_S):
        return None
    wanted = 2 * recorded_s if seen.length_s is None or not seen.count else seen.length_s * (least_steps + 2)
    readable = recorded_s * MOST_EVENTS / max(seen.n_events, 1)
    found = min(max(wanted, recorded_s), LONGEST_S, readable)
    # Where events come so fast that a longer recording could not be read, there is no better one than this.
    return None if seen.count and found < recorded_s * 1.5 else found
