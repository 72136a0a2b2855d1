"""Runs inside a program of the user: records a trace of it, from the first compiled program on, for a limited time.

`begin` is the hook that `hooks/command.py` calls as soon as the program has imported jax. It returns a function to call
at the program's end. `begin` starts nothing: JAX's profiler starts the backend, and the program might still want to
choose the backend. The end of the first compilation shows that the backend exists. The recording stops by itself
`duration_s` after the last compilation. Otherwise, benchax would not see a program run that compiles for a minute. The
recording also stops when the program begins its own trace. So long programs leave traces that users can open. The
recorder then writes the files while the program runs, and they survive a later SIGKILL.

If the user wants steps of a loop, it checks each recording when its time is over. Another one follows until
there are enough steps. The recorder keeps the first recording, for the first step, and the one in whose steps the
device did most. If no recording has steps, it keeps the newest.

This module must never raise into the program, nor wait longer than the profiler needs to write.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import Any

import jax
import numpy as np
import psutil

from benchax.errors import NotMeasured
from benchax.profiling.events import read
from benchax.profiling.host_thread import COMPILED, read_compile_marks, read_host_thread
from benchax.profiling.operations import KEEP, PS, TPU_RUNS, Operations, on_busiest_device, operations, runs_by_device
from benchax.profiling.profile import Session, preflight, session
from benchax.profiling.samplers import INTERVAL_S, StackSampler, annotate, describe_stack
from benchax.profiling.step_split import busiest_programs, find_steps
from benchax.repeating import LEAST_CALLS
from benchax.results.profile import MANY_EVENTS_PER_S, Run
from benchax.source_files import owner_of
from benchax.units import plural, seconds
from benchax.watching.compiles import CompileEvent, Listening

# Whether a recording has seen enough of a loop that runs steadily, how long another one should be, and what it costs.
#
# A program that begins by loading data shows only its initialisation at first. So a recording ends when its time is
# over, and benchax checks it while the program runs. Another recording follows if the same program was not called often
# enough, or was no longer being called at the end.

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
    found = operations(space)
    if not len(found):
        return SeenSteps(0, None, len(space))
    runs = runs_by_device(found)
    in_all_s = _worked_s(found, runs)
    begin = find_steps(space, read_host_thread(space, list(read_compile_marks(space))), runs).begin_ps
    if not len(begin):
        return SeenSteps(0, None, len(space), in_all_s=in_all_s)
    length = float(np.median(np.diff(begin)))
    over = space.start_ps.max()
    is_still = over - begin[-1] <= max(STILL_STEPS * length, STILL * (over - space.start_ps.min()))
    steps = begin[1:] if len(begin) > LEAST_CALLS else begin
    program, often = (busiest_programs(runs, steps[0], steps[-1]) or [("", 0)])[0]
    return SeenSteps(
        len(begin) - 1 if is_still else 0,
        length / PS,
        len(space),
        _worked_s(found, runs, int(begin[0])),
        in_all_s,
        program,
        runs_per_step=often / (len(steps) - 1),
        events_per_s=space.count_events(int(steps[0]), int(steps[-1])) * PS / float(steps[-1] - steps[0]),
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
    # If events come so fast that a longer recording would be unreadable, this one is the best possible.
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


def watch_growth(limit: int | None) -> Iterator[int | None]:
    """Yields how much this process has grown since the first look, if that is enough to look at the recording. Else it
    yields None. Ask for the next one every now and then, while nothing is compiled: what a compiler takes are no
    events.

    Args:
        limit: what is enough. None: `FIRST_GROWTH`.
    """
    process = psutil.Process()
    before, growth, steadily = process.memory_info().rss, 0, 0
    while True:
        earlier, growth = growth, process.memory_info().rss - before
        steadily = steadily + 1 if growth - earlier >= LEAST_GROWTH else 0
        is_large = growth >= MOST_GROWTH or steadily >= STEADILY
        yield growth if is_large and growth >= (FIRST_GROWTH if limit is None else limit) else None


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
"""Between two looks: with fewer, their distance has no length of a run in it."""
GLANCE_S = 2e-3
"""The least duration of a recording between two windows; otherwise it takes two steps."""
GLANCES = 4
"""Each twice as long as the one before, until a run is in one."""


RunTimes = dict[int, float]
"""The number of each run of a program in one recording → when it began, on `perf_counter_ns`."""


def measure_plain_pace(
    program: str, step_s: float, record: Callable[[float], bytes], wait: Callable[[float], None]
) -> float:
    """Returns the seconds from one run of a program to the next while nothing is recorded.

    Args:
        program: its name, such as jit_step.
        step_s: the time between its runs during a recording.
        record: records for the given seconds, with the time behind `CLOCK`, and returns the trace.
        wait: waits for the given seconds.

    Raises:
        NotMeasured: the program no longer runs, or its run numbers are not consecutive.
    """

    def glance() -> RunTimes:
        for attempt in range(GLANCES):
            if found := read_run_times(record(max(GLANCE_S, 2 * step_s) * 2**attempt), program):
                return found
        raise NotMeasured(f"{program} was not run any more")

    began_ns = perf_counter_ns()
    before = glance()
    taken_s = (perf_counter_ns() - began_ns) / 1e9
    found_ns: list[float] = []
    try:
        for _ in range(WINDOWS):
            wait(min(max(WINDOW_STEPS * step_s, WINDOW_GLANCES * taken_s, LEAST_WINDOW_S), MOST_WINDOW_S))
            after = glance()
            last, first = max(before), min(after)
            if first - last < LEAST_RUNS:
                raise NotMeasured(f"there were too few runs to be counted: {max(first - last, 0)}")
            found_ns.append((after[first] - before[last]) / (first - last))
            before = after
    except NotMeasured:
        if not found_ns:  # else the loop has ended in a later window
            raise
    return median(found_ns) / 1e9


def read_run_times(xspace: bytes, program: str) -> RunTimes:
    """Returns the runs of one program in a trace; none if it did not run.

    Raises:
        NotMeasured: they are not consecutive, as if several programs had that name; or the trace lacks `CLOCK`.
    """
    space = read(xspace, KEEP)
    runs = on_busiest_device(runs_by_device(operations(space, TPU_RUNS)))
    mine = sorted((run for run in runs if run.module == program), key=lambda run: run.run_id)
    if any(later.run_id != run.run_id + 1 for run, later in pairwise(mine)):
        raise NotMeasured(f"the runs of {program} are not numbered in a row by jax {jax.__version__}")
    clock = space.find(lambda name: name.startswith(CLOCK)).tolist()
    if mine and not clock:
        raise NotMeasured("the trace does not say when it was recorded")
    zero_ns = [int(space.name_of(at).removeprefix(CLOCK)) - int(space.start_ps[at]) / 1e3 for at in clock]
    return {run.run_id: zero_ns[0] + run.start_s * 1e9 for run in mine}


HOOK = "benchax.profiling.program_recorder:begin"
MOST_MARKS = 1000
"""The recorder remembers this many compilations from before the recording."""
MOST_TIMES = 12
"""A program that is still compiling is recorded for longer, up to this many times the requested duration."""
LOOK_EVERY_S = 0.25
"""A thread that waits costs nothing in between."""
_THEIRS = ("start_trace", "trace")


@dataclass(frozen=True)
class ProgramRequest:
    """The settings of a recording."""

    folder: str
    start_after_s: float = 0.0
    """After the import of jax."""
    duration_s: float = 5.0
    """After the beginning and after each compilation."""
    keeps_memory: bool = False
    """In addition to the trace, the recorder reads memory during the recording, and the live values on the device at
    its end."""
    samples_stack: bool = False
    """In the trace: at which line of Python the program is, and what JAX compiles."""
    least_steps: int = 0
    """Recordings follow one another until one holds this many steps of a loop. 0: there is one recording, whatever it
    holds."""
    told_in: str = ""
    """The folder in which this process tells in a file how far it is; empty: nowhere."""


@dataclass
class Recorded:
    """The result of a recording. It goes through JSON."""

    xplane: str | None = None
    """The trace. None: there is no trace, and `remarks` give the reason."""
    first_xplane: str | None = None
    """The first trace, if it is a different one."""
    began_s: float | None = None
    """After the import of jax."""
    recorded_s: float | None = None
    stop_s: float | None = None
    """How long the profiler took to stop and write."""
    stopped_by: str = ""
    """end, duration, or trace of the program's own."""
    attempts: int = 0
    """How many recordings there were."""
    unrecorded_step_s: float | None = None
    """The time of a step while nothing is recorded. None: not measured. If the time matters, `why_no_pace` has the
    reason."""
    why_no_pace: str = ""
    is_full: bool = False
    """The recording was ended before its time, for it held many events, and enough steps or as many as can be read."""
    remarks: list[str] = field(default_factory=list)


def begin(settings: Mapping[str, Any]) -> Callable[[str], dict[str, Any]]:
    """The hook. `settings` are those of `ProgramRequest`."""
    recorder = Recorder(ProgramRequest(**settings))
    recorder.listen()
    return lambda how: recorder.finish()


class Recorder:
    """One recording, or several until one is enough, in one process: waiting, recording, stopped."""

    def __init__(self, wish: ProgramRequest) -> None:
        self.wish = wish
        self.imported = perf_counter()
        self.pid = os.getpid()
        self.found = Recorded()
        # A SIGTERM handler may enter here again, in the middle of anything on this thread.
        self.lock = threading.RLock()
        self.forks = 0
        self.is_asked = False
        self.is_compiling = False
        self.last_compiled = -math.inf
        self.recording: Session | None = None
        self.open = contextlib.ExitStack()
        """Ends the recording that is under way."""
        self.earlier_marks: list[tuple[str, int]] = []
        """The compilations while nothing was recorded: names of events, and microseconds."""
        self.compiling_thread = threading.main_thread().ident or 0
        self.lasting_s = wish.duration_s
        """How long the recording is to be that is under way."""
        self.segment_began = self.due = math.inf
        self.growth_limit: int | None = None
        """Bytes after which a later recording is looked at. None: this is the first one."""
        self.growing = watch_growth(self.growth_limit)
        self.grown: int | None = None
        """The recording under way is looked at before its time is over, because the process has grown by this much."""
        self.best = SeenSteps(0, None, 0, -1.0)
        """The steps of the recording that is kept."""
        self.is_wanted = threading.Event()
        """Set when the program ends, or traces itself: nothing may be waited for any more."""
        self.theirs = {name: getattr(jax.profiler, name) for name in _THEIRS}

    def listen(self) -> None:
        Listening(self.on_step).__enter__()  # to the end of the program
        os.register_at_fork(after_in_parent=self._count_fork)
        owner_of(__file__)  # finds out where packages lie, which is not to be a part of what is recorded
        self.give_way()

    def _count_fork(self) -> None:
        self.forks += 1

    def give_way(self) -> None:
        """From here to `finish` a trace of the program's own ends ours: JAX records one trace at a time."""

        def stopping_ours(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)
            def theirs(*args: Any, **kwargs: Any) -> Any:
                self.stop("trace of the program's own")
                return function(*args, **kwargs)

            return theirs

        for name, function in self.theirs.items():
            setattr(jax.profiler, name, stopping_ours(function))

    def on_step(self, step: CompileEvent) -> None:
        if os.getpid() != self.pid:  # a fork has the listener, too
            return
        # JAX sends events only at the end of a step, so a compilation is in progress from the end of its lowering.
        self.is_compiling = step.kind == "lower" or (self.is_compiling and step.kind != "compile")
        if self.wish.samples_stack and not self.found.stopped_by:
            self._mark(step)
        if step.kind != "compile":
            return
        self.last_compiled = perf_counter()
        if self.recording is not None:
            self.growing = watch_growth(self.growth_limit)
        if not self.is_asked:
            self.is_asked = True
            wait_s = self.wish.start_after_s - (perf_counter() - self.imported)
            later = threading.Timer(max(wait_s, 0.0), self.start)
            later.daemon = True
            # Begin immediately, in this thread: the compiled program is about to run.
            (later.start if wait_s > 0 else self.start)()

    def _mark(self, step: CompileEvent) -> None:
        """Leaves in the trace what JAX has just done, and where it was called."""
        self.compiling_thread = threading.get_ident()
        name = (step.fun_name or "?").replace(" ", "_").replace("#", "_")
        text, elapsed_us = f"{COMPILED}{step.kind} {name} {describe_stack(sys._getframe(2))}", int(step.elapsed_s * 1e6)
        if self.recording is not None:
            annotate(text, elapsed_us=elapsed_us, before=0)
        elif len(self.earlier_marks) < MOST_MARKS:
            self.earlier_marks.append((text, elapsed_us))

    def start(self) -> None:
        """Begins to record, and the thread that ends it."""
        with self.lock:
            if self.recording is None and not self.found.stopped_by and self._start():
                threading.Thread(target=self._watch, name="benchax-recorder", daemon=True).start()

    def _start(self) -> bool:
        """Begins a recording. Returns False if that is not possible; a remark has the reason."""
        folder = Path(self.wish.folder)
        try:
            findings = preflight(folder)
            self.found.remarks += [remark.message for remark in findings if not self.found.attempts]
            if any(remark.severity == "error" for remark in findings):
                return False
            memory_s = INTERVAL_S if self.wish.keeps_memory else None
            recorded = session(folder=folder, keeps_memory=self.wish.keeps_memory, memory_s=memory_s)
            self.recording = self.open.enter_context(recorded)
            self.found.attempts += 1
            self.segment_began, self.grown = perf_counter(), None
            self.due = self.segment_began + self.lasting_s
            if self.found.began_s is None:
                self.found.began_s = self.segment_began - self.imported
                self._tell(f"recording for {seconds(self.lasting_s, 2)}")
            self.growing = watch_growth(self.growth_limit)
            if self.wish.samples_stack:
                for text, elapsed_us in self.earlier_marks:
                    annotate(text, elapsed_us=elapsed_us, before=1)
                self.open.callback(StackSampler(lambda: self.compiling_thread).start().stop)
        except Exception as error:  # the program must not notice
            self.found.remarks.append(f"the profiler did not start: {error}")
        return self.recording is not None

    def _tell(self, text: str) -> None:
        if self.wish.told_in:
            with contextlib.suppress(OSError):  # no room, or nobody waits any more
                Path(self.wish.told_in, f"{self.pid}.txt").write_text(text, encoding="utf-8")

    # ---- when a recording ends --------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Ends each recording, in a thread of ours, and begins another one where it did not hold enough steps."""
        most_s = LOOK_EVERY_S if self.wish.least_steps else threading.TIMEOUT_MAX
        while not self.is_wanted.wait(min(max(0.0, self.due - perf_counter()), most_s)):
            with self.lock:
                is_over = not self.found.stopped_by and self._is_enough()
                # `stop` says that the only recording is over before it writes it: a worker makes no more calls then.
                if is_over and not (self.wish.least_steps and self._goes_on()):
                    self.stop("duration")

    def _is_enough(self) -> bool:
        """When the time is over; later if a compilation was part of it, and earlier if there are many events.

        A loop of very short steps has shown enough long before the time is over, and benchax could not read more.
        """
        now = perf_counter()
        if self.is_compiling:
            self.due = now + self.lasting_s if now >= self.due else self.due
        elif self.wish.least_steps:
            self.grown = next(self.growing)
        else:
            self.due = max(self.due, self.last_compiled + self.lasting_s)
        return self.grown is not None or now >= min(self.due, self.segment_began + MOST_TIMES * self.lasting_s)

    def _goes_on(self) -> bool:
        """Ends this recording, and begins another one where it did not hold enough steps."""
        again_s = self._stop()
        if again_s is None:
            self._measure_pace()
            return False
        self.lasting_s = again_s
        return self._start()

    def _measure_pace(self) -> None:
        """How long a step takes without the recording, where its events are so many that they lengthen it."""
        seen = self.best
        if seen.length_s is None or seen.events_per_s < MANY_EVENTS_PER_S:
            return
        self._tell("measuring how long a step takes while nothing is recorded")
        try:
            if not seen.program:
                raise NotMeasured("the trace does not number the runs of programs")
            apart_s = seen.length_s / seen.runs_per_step
            pace_s = measure_plain_pace(seen.program, apart_s, self._record_briefly, self._wait)
            self.found.unrecorded_step_s = pace_s * seen.runs_per_step
        except Exception as error:  # a full disk, for instance: the program goes on
            self.found.why_no_pace = getattr(error, "problem", str(error))

    def _record_briefly(self, for_s: float) -> bytes:
        with session({"enable_hlo_proto": False}) as recorded:
            annotate(f"{CLOCK}{perf_counter_ns()}")
            self._wait(for_s)
        return recorded.xspace

    def _wait(self, for_s: float) -> None:
        if self.is_wanted.wait(for_s):
            raise NotMeasured("the program ended before it was")

    def stop(self, by: str) -> None:
        self.is_wanted.set()  # whoever holds the lock may be waiting
        with self.lock:
            if self.found.stopped_by:
                return
            # Mark it before the work: a SIGTERM handler may enter here again, on this thread, while the files are
            # written.
            self.found.stopped_by = by
            self._stop()
            if by != "end":
                self._tell("enough is recorded; the report comes when the program ends")

    def _stop(self) -> float | None:
        """Writes the recording that is under way, if one is; returns how long another one should be."""
        if self.recording is None:
            return None
        recorded, self.recording = self.recording, None
        recorded_s = perf_counter() - self.segment_began
        try:
            self.open.close()
            self.found.remarks += [each for each in recorded.remarks if each not in self.found.remarks]
            return self._choose(recorded, recorded_s) if recorded.files else None
        except Exception as error:  # a full disk: the program goes on
            self.found.remarks.append(str(error))
            return None

    def _choose(self, recorded: Session, recorded_s: float) -> float | None:
        """Keeps this recording where it is the best so far; returns how long another one should be."""
        again_s, seen = None, SeenSteps(0, None, 0)
        # The only recording needs no check.
        if self.wish.least_steps and not (self.found.stopped_by and self.found.attempts == 1):
            seen = look(recorded.xspace)
            since_s = perf_counter() - self.imported
            again_s = next_duration(seen, recorded_s, since_s, self.wish.least_steps)
            if self.grown is not None:
                is_of_events = seen.n_events >= FIRST_EVENTS
                self.growth_limit = MOST_GROWTH if is_of_events else max(GROWN, 2 * self.grown)
                again_s = again_s if is_of_events else self.wish.duration_s
            if again_s is not None:
                steps = f"{seen.count} of {self.wish.least_steps} steps of a loop seen"
                self._tell(f"{steps}; recording for another {seconds(again_s, 2)}")
        file, best = str(recorded.files["xplane"]), self.best
        # Without steps, take the newest recording in which anything ran, because the loop might have begun. Skip one
        # that the end cut short.
        is_newer = seen.in_all_s > 0 and (not self.found.stopped_by or not best.in_all_s)
        if seen.worked_s > best.worked_s or (not seen.worked_s and not best.worked_s and is_newer):
            old = self.found.xplane
            if self.found.attempts == 2:
                self.found.first_xplane = old
            elif old is not None:
                shutil.rmtree(Path(old).parent, ignore_errors=True)
            self.found.xplane, self.best = file, seen
            self.found.is_full = self.grown is not None and again_s is None
            self.found.began_s = self.segment_began - self.imported
            self.found.recorded_s, self.found.stop_s = recorded_s, recorded.stop_s
        elif file != self.found.xplane:
            shutil.rmtree(Path(file).parent, ignore_errors=True)
        return again_s

    def finish(self) -> dict[str, Any]:
        """Stops, and says what came of it."""
        self.stop("end")
        for name, function in self.theirs.items():
            setattr(jax.profiler, name, function)
        if self.found.began_s is None and not self.found.remarks:
            self.found.remarks.append(self._why_not_started())
        if self.forks:
            made = f"the program made {plural(self.forks, 'fork')} of itself"
            self.found.remarks.append(f"{made}: their work, such as loading data, was not recorded")
        return asdict(self.found)

    def _why_not_started(self) -> str:
        if not self.is_asked:
            return "the program compiled nothing with JAX, so there was nothing to profile"
        if self.found.stopped_by != "end":
            return "the program began its own trace first"
        return f"the program ended before the {self.wish.start_after_s:g} s had passed after which to begin"
