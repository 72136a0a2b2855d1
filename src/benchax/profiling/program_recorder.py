"""Runs inside a program of the user: records a trace of it, from the first compiled program on, for a limited time.

`begin` is the hook that `hooks/command.py` calls as soon as the program has imported jax. It returns a function to call
at the program's end. `begin` starts nothing: JAX's profiler starts the backend, and the program might still want to
choose the backend. The end of the first compilation shows that the backend exists. The recording stops by itself
`duration_s` after the last compilation. Otherwise, benchax would not see a program run that compiles for a minute. The
recording also stops when the program begins its own trace. So long programs leave traces that users can open. The
recorder then writes the files while the program runs, and they survive a later SIGKILL.

If the user wants steps of a loop, `steady.py` checks each recording when its time is over. Another one follows until
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
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import jax

from benchax.errors import NotMeasured
from benchax.profiling import files, preflight, steady
from benchax.profiling.marks import COMPILED
from benchax.profiling.memory import Sampler
from benchax.profiling.session import Session, mark_machine, session
from benchax.profiling.stack_sampler import StackSampler, describe_stack
from benchax.results.profile import MANY_EVENTS_PER_S, Timeline
from benchax.source_files import owner_of
from benchax.units import plural, seconds
from benchax.watching.compiles import CompileEvent, Listening

HOOK = "benchax.profiling.program_recorder:begin"
MOST_MARKS = 1000
"""The recorder remembers this many compilations from before the recording."""
MOST_TIMES = 12
"""A program that is still compiling is recorded for longer, up to this many times the requested duration."""
LOOK_EVERY_S = 0.25
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
        # Entered again by a handler of SIGTERM, in whatever this thread is doing.
        self.lock = threading.RLock()
        self.forks = 0
        self.is_asked = False
        self.is_compiling = False
        self.last_compiled = -math.inf
        self.is_starting = False
        self.recording: tuple[AbstractContextManager[Session], Session] | None = None
        self.sampler: Sampler | None = None
        self.stacks: StackSampler | None = None
        self.earlier_marks: list[tuple[str, int]] = []
        """The compilations while nothing was recorded: names of events, and microseconds."""
        self.compiling_thread = threading.main_thread().ident or 0
        self.lasting_s = wish.duration_s
        """How long the recording is to be that is under way."""
        self.segment_began = self.due = math.inf
        self.growth = steady.RecordingGrowth()
        self.is_early = False
        """The recording under way is looked at before its time is over, because the process has grown."""
        self.most_steps = 0
        self.best = steady.SeenSteps(0, None, 0, -1.0)
        """The steps of the recording that is kept."""
        self.is_wanted = threading.Event()
        """Set when the program ends, or traces itself: nothing may be waited for any more."""
        self.over = threading.Event()
        """Set once it has stopped and its files are written."""
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
                if not self.is_starting:
                    self.stop("trace of the program's own")
                return function(*args, **kwargs)

            return theirs

        for name, function in self.theirs.items():
            setattr(jax.profiler, name, stopping_ours(function))

    def on_step(self, step: CompileEvent) -> None:
        if os.getpid() != self.pid:  # a fork has the listener, too
            return
        # JAX sends an event at the end of a step only, so a compilation is under way from the end of its lowering on.
        self.is_compiling = step.kind == "lower" or (self.is_compiling and step.kind != "compile")
        if self.wish.samples_stack and not self.found.stopped_by:
            self._mark(step)
        if step.kind != "compile":
            return
        self.last_compiled = perf_counter()
        if self.recording is not None:
            self.growth.begin()
        if not self.is_asked:
            self.is_asked = True
            wait_s = self.wish.start_after_s - (perf_counter() - self.imported)
            later = threading.Timer(max(wait_s, 0.0), self.start)
            later.daemon = True
            # At once, in this thread: the program that was compiled is about to run.
            (later.start if wait_s > 0 else self.start)()

    def _mark(self, step: CompileEvent) -> None:
        """Leaves in the trace what JAX has just done, and where it was called."""
        self.compiling_thread = threading.get_ident()
        name = (step.fun_name or "?").replace(" ", "_").replace("#", "_")
        text, elapsed_us = f"{COMPILED}{step.kind} {name} {describe_stack(sys._getframe(2))}", int(step.elapsed_s * 1e6)
        if self.recording is not None:
            if self.stacks is not None:
                self.stacks.follow(self.compiling_thread)
            _annotate(text, elapsed_us, before=0)
        elif len(self.earlier_marks) < MOST_MARKS:
            self.earlier_marks.append((text, elapsed_us))

    def start(self) -> None:
        """Begins to record, and the thread that ends it."""
        with self.lock:
            if self.recording is not None or self.found.stopped_by:
                return
            try:
                self._start()
            except Exception as error:  # the program must not notice
                self.found.remarks.append(f"the profiler did not start: {error}")
            if self.recording is not None:
                threading.Thread(target=self._watch, name="benchax-recorder", daemon=True).start()

    def _start(self) -> None:
        folder = Path(self.wish.folder)
        findings = preflight.check(folder)
        self.found.remarks += [remark.message for remark in findings if not self.found.attempts]
        if any(remark.severity == "error" for remark in findings):
            return
        manager = session(folder=folder)
        self.recording = (manager, self._enter(manager))
        mark_machine()
        self.found.attempts += 1
        self.segment_began = perf_counter()
        self.due = self.segment_began + self.lasting_s
        if self.found.began_s is None:
            self.found.began_s = self.segment_began - self.imported
            self._tell(f"recording for {seconds(self.lasting_s, 2)}")
        self.is_early = False
        self.growth.begin()
        if self.wish.keeps_memory:
            self.sampler = Sampler().start()
        if self.wish.samples_stack:
            for text, elapsed_us in self.earlier_marks:
                _annotate(text, elapsed_us, before=1)
            self.stacks = StackSampler()
            self.stacks.follow(self.compiling_thread)
            self.stacks.start()

    def _enter(self, manager: AbstractContextManager[Session]) -> Session:
        self.is_starting = True  # our own session calls `start_trace`, by the name that we have replaced
        try:
            return manager.__enter__()
        finally:
            self.is_starting = False

    def _tell(self, text: str) -> None:
        if self.wish.told_in:
            with contextlib.suppress(OSError):  # no room, or nobody waits any more
                Path(self.wish.told_in, f"{self.pid}.txt").write_text(text, encoding="utf-8")

    # ---- when a recording ends --------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Ends each recording, in a thread of ours, and begins another one where it did not hold enough steps."""
        while not self.is_wanted.wait(self._pause_s()):
            with self.lock:
                if self._is_enough() and not (self.wish.least_steps and self._goes_on()):
                    self.stop("duration")

    def _pause_s(self) -> float:
        left_s = max(0.0, self.due - perf_counter())
        return min(left_s, LOOK_EVERY_S) if self.wish.least_steps else left_s

    def _is_enough(self) -> bool:
        """When the time is over; later if a compilation was part of it, and earlier if there are many events.

        A loop of very short steps has shown enough long before the time is over, and benchax could not read more.
        """
        now = perf_counter()
        if self.is_compiling:
            self.due = now + self.lasting_s if now >= self.due else self.due
        elif self.wish.least_steps:
            self.is_early = self.growth.is_enough()
        else:
            self.due = max(self.due, self.last_compiled + self.lasting_s)
        return self.is_early or now >= min(self.due, self.segment_began + MOST_TIMES * self.lasting_s)

    def _goes_on(self) -> bool:
        """Ends this recording, and begins another one where it did not hold enough steps."""
        if self.found.stopped_by:
            return False
        try:
            again_s = self._stop()
            if again_s is None:
                self._measure_pace()
                return False
            seen = f"{self.most_steps} of {self.wish.least_steps} steps of a loop seen"
            self._tell(f"{seen}; recording for another {seconds(again_s, 2)}")
            self.lasting_s = again_s
            self._start()
        except Exception as error:  # a full disk: the program goes on
            self.found.remarks.append(str(error))
        return self.recording is not None

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
            pace_s = steady.measure_plain_pace(seen.program, apart_s, self._record_briefly, self._wait)
            self.found.unrecorded_step_s = pace_s * seen.runs_per_step
        except NotMeasured as error:
            self.found.why_no_pace = error.problem
        except Exception as error:  # a full disk: the program goes on
            self.found.why_no_pace = str(error)

    def _record_briefly(self, for_s: float) -> bytes:
        manager = session({"enable_hlo_proto": False})
        recorded = self._enter(manager)
        try:
            steady.mark_clock()
            self._wait(for_s)
        finally:
            manager.__exit__(*sys.exc_info())
        return recorded.xspace

    def _wait(self, for_s: float) -> None:
        if self.is_wanted.wait(for_s):
            raise NotMeasured("the program ended before it was")

    def stop(self, by: str) -> None:
        self.is_wanted.set()  # whoever holds the lock may be waiting
        with self.lock:
            if self.found.stopped_by:
                return
            # Before the work: a handler of SIGTERM may come in here again, on this thread, while the files are written.
            self.found.stopped_by = by
            try:
                self._stop()
            except Exception as error:  # a full disk: the program goes on
                self.found.remarks.append(str(error))
            finally:
                self.over.set()
            if by != "end":
                self._tell("enough is recorded; the report comes when the program ends")

    def _stop(self) -> float | None:
        """Writes the recording that is under way, if one is; returns how long another one should be."""
        if self.recording is None:
            return None
        manager, recorded = self.recording
        timeline = None if self.sampler is None else self.sampler.stop()
        if self.stacks is not None:
            self.stacks.stop()
        recorded_s = perf_counter() - self.segment_began
        self.recording = None
        manager.__exit__(None, None, None)
        self.found.remarks += recorded.remarks if self.found.attempts == 1 else []
        if recorded.run is None:
            return None
        if timeline is not None:
            self._keep_memory(recorded.run, timeline)
        return self._choose(recorded, recorded_s)

    def _choose(self, recorded: Session, recorded_s: float) -> float | None:
        """Keeps this recording where it is the best so far; returns how long another one should be."""
        again_s, seen = None, steady.SeenSteps(0, None, 0)
        # One that is the only one needs not be looked at: it is what there is.
        if self.wish.least_steps and not (self.found.stopped_by and self.found.attempts == 1):
            seen = steady.look(recorded.xspace)
            self.most_steps = max(self.most_steps, seen.count)
            since_s = perf_counter() - self.imported
            again_s = steady.next_duration(seen, recorded_s, since_s, self.wish.least_steps)
            if self.is_early and not self.growth.is_of_events(seen.n_events):
                again_s = self.wish.duration_s
        file, best = str(recorded.files["xplane"]), self.best
        # Without steps the newest in which anything ran, as the loop may have begun; none that the end cut short.
        is_newer = seen.in_all_s > 0 and (not self.found.stopped_by or not best.in_all_s)
        if seen.worked_s > best.worked_s or (not seen.worked_s and not best.worked_s and is_newer):
            old = self.found.xplane
            if self.found.attempts == 2:
                self.found.first_xplane = old
            elif old is not None:
                shutil.rmtree(Path(old).parent, ignore_errors=True)
            self.found.xplane, self.best = file, seen
            self.found.is_full = self.is_early and again_s is None
            self.found.began_s = self.segment_began - self.imported
            self.found.recorded_s, self.found.stop_s = recorded_s, recorded.stop_s
        elif file != self.found.xplane:
            shutil.rmtree(Path(file).parent, ignore_errors=True)
        return again_s

    def _keep_memory(self, run: Path, timeline: Timeline) -> None:
        if timeline.incomplete:
            self.found.remarks.append(timeline.incomplete)
        try:
            files.write_timeline(run, timeline)
            (run / files.MEMORY).write_bytes(jax.profiler.device_memory_profile())
        except Exception as error:
            self.found.remarks.append(f"the memory profile could not be taken: {error}")

    def finish(self) -> dict[str, Any]:
        """Stops, and says what came of it."""
        self.stop("end")
        for name, function in self.theirs.items():
            setattr(jax.profiler, name, function)
        if self.found.began_s is None and not self.found.remarks:
            self.found.remarks.append(self._why_not_started())
        if self.forks:
            made = f"the program made {plural(self.forks, 'fork')} of itself"
            self.found.remarks.append(f"{made}: what those did, such as loading data, is not in here")
        return asdict(self.found)

    def _why_not_started(self) -> str:
        if not self.is_asked:
            return "the program compiled nothing with JAX, so that there was nothing to profile"
        if self.found.stopped_by != "end":
            return "the program began a trace of its own before ours"
        return f"the program ended before the {self.wish.start_after_s:g} s had passed after which to begin"


def _annotate(text: str, elapsed_us: int, before: int) -> None:
    with jax.profiler.TraceAnnotation(text, elapsed_us=elapsed_us, before=before):
        pass
