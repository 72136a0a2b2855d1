"""Inside a program of the user's: records a trace of it, from the first compiled program on, for a limited time.

`begin` is the hook that `hooks/command.py` has called as soon as the program has imported jax, and returns what is
called at its end. Nothing is started then: JAX's profiler starts the backend, and the program may still want to choose
it. The end of the first compilation is the sign that the backend is there. The recording stops by itself `duration_s`
after the last compilation (a program that compiles for a minute would not be seen running otherwise), or when the
program begins a trace of its own, so that long programs leave traces that can be opened. The files are written then,
beside the running program, and outlive a SIGKILL that comes later.

Nothing here may raise into the program, nor wait longer than the profiler needs to write.
"""

from __future__ import annotations

import functools
import math
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

import jax

from benchax.profiling import files, preflight
from benchax.profiling.memory import Sampler
from benchax.profiling.session import Session, session
from benchax.results.profile import Timeline

HOOK = "benchax.profiling.program_recorder:begin"
LOWERED = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILED = "/jax/core/compile/backend_compile_duration"
MOST_TIMES = 12
"""A program that is still compiling is recorded for longer, up to so many times what was asked for."""
_THEIRS = ("start_trace", "trace")


@dataclass(frozen=True)
class ProgramRequest:
    """What is to be recorded."""

    folder: str
    start_after_s: float = 0.0
    """After the import of jax."""
    duration_s: float = 5.0
    """After the beginning and after each compilation."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """As `session` takes them."""
    keeps_memory: bool = False
    """Beside the trace: readings of memory while it is recorded, and what is alive on the device when it ends."""


@dataclass
class Recorded:
    """What came of it. Goes through JSON."""

    xplane: str | None = None
    """The trace; None: there is none, and `remarks` say why."""
    began_s: float | None = None
    """After the import of jax."""
    recorded_s: float | None = None
    stop_s: float | None = None
    """How long the profiler took to stop and write."""
    stopped_by: str = ""
    """end, duration, or trace of the program's own."""
    platform: str | None = None
    remarks: list[str] = field(default_factory=list)


def begin(settings: Mapping[str, Any]) -> Callable[[str], dict[str, Any]]:
    """The hook. `settings` are those of `ProgramRequest`."""
    recorder = Recorder(ProgramRequest(**settings))
    recorder.listen()
    return lambda how: recorder.finish()


class Recorder:
    """One recording in one process: waiting, recording, stopped."""

    def __init__(self, wish: ProgramRequest) -> None:
        self.wish = wish
        self.imported = perf_counter()
        self.pid = os.getpid()
        self.found = Recorded()
        # Entered again by a handler of SIGTERM, in whatever this thread is doing.
        self.lock = threading.RLock()
        self.is_asked = False
        self.is_compiling = False
        self.last_compiled = -math.inf
        self.is_starting = False
        self.recording: tuple[AbstractContextManager[Session], Session] | None = None
        self.sampler: Sampler | None = None
        self.over = threading.Event()
        """Set once it has stopped and its files are written."""
        self.theirs = {name: getattr(jax.profiler, name) for name in _THEIRS}

    def listen(self) -> None:
        # Never taken away: JAX below 0.8.1 has no public way to do so, and after the recording this does nothing.
        jax.monitoring.register_event_duration_secs_listener(self.on_event)
        self.give_way()

    def give_way(self) -> None:
        """From here to `finish` a trace of the program's own ends ours."""
        for name, function in self.theirs.items():
            setattr(jax.profiler, name, self._after_ours(function))

    def on_event(self, event: str, duration_secs: float, **_: Any) -> None:
        """Called for all that JAX times; never for calls of what is compiled already."""
        # JAX sends an event at the end of a step only, so a compilation is under way from the end of its lowering on.
        self.is_compiling = event == LOWERED or (self.is_compiling and event != COMPILED)
        if event == COMPILED:
            self.last_compiled = perf_counter()
        if self.is_asked or event != COMPILED or os.getpid() != self.pid:  # a fork has the listener, too
            return
        self.is_asked = True
        wait_s = self.wish.start_after_s - (perf_counter() - self.imported)
        if wait_s > 0:
            _later(wait_s, self.start)
        else:
            self.start()

    def start(self) -> None:
        with self.lock:
            if self.recording is not None or self.found.stopped_by:
                return
            try:
                self._start()
            except Exception as error:  # the program must not notice
                self.found.remarks.append(f"the profiler did not start: {error}")

    def _start(self) -> None:
        folder = Path(self.wish.folder)
        findings = preflight.check(folder)
        self.found.platform = jax.default_backend()
        self.found.remarks += [remark.message for remark in findings]
        if any(remark.severity == "error" for remark in findings):
            return
        manager = session(self.wish.options, folder=folder)
        self.is_starting = True  # our own session calls `start_trace`, by the name that we have replaced
        try:
            self.recording = (manager, manager.__enter__())
        finally:
            self.is_starting = False
        self.found.began_s = perf_counter() - self.imported
        _later(self.wish.duration_s, self.stop_unless_compiling)
        if self.wish.keeps_memory:
            self.sampler = Sampler().start()

    def stop_unless_compiling(self) -> None:
        """When the time is over; later, where a compilation was part of it."""
        now, lasting = perf_counter(), self.wish.duration_s
        is_late = now - self.imported - (self.found.began_s or 0.0) >= MOST_TIMES * lasting
        rest_s = lasting if self.is_compiling else self.last_compiled + lasting - now
        if rest_s <= 0 or is_late:
            self.stop("duration")
        elif not self.found.stopped_by:
            _later(rest_s, self.stop_unless_compiling)

    def stop(self, by: str) -> None:
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

    def _stop(self) -> None:
        if self.recording is None or self.found.began_s is None:
            return
        self.found.recorded_s = perf_counter() - self.imported - self.found.began_s
        manager, recorded = self.recording
        self.recording = None
        timeline = None if self.sampler is None else self.sampler.stop()
        manager.__exit__(None, None, None)
        self.found.stop_s = recorded.stop_s
        self.found.remarks += recorded.remarks
        if recorded.run is not None:
            self.found.xplane = str(recorded.files["xplane"])
            if timeline is not None:
                self._keep_memory(recorded.run, timeline)

    def _keep_memory(self, run: Path, timeline: Timeline) -> None:
        if timeline.incomplete:
            self.found.remarks.append(timeline.incomplete)
        try:
            files.write_timeline(run, timeline)
            files.write_memory(run, jax.profiler.device_memory_profile())
        except Exception as error:
            self.found.remarks.append(f"the memory profile could not be taken: {error}")

    def finish(self) -> dict[str, Any]:
        """Stops, and says what came of it."""
        self.stop("end")
        for name, function in self.theirs.items():
            setattr(jax.profiler, name, function)
        if self.found.began_s is None and not self.found.remarks:
            self.found.remarks.append(self._why_not_started())
        return asdict(self.found)

    def _why_not_started(self) -> str:
        if not self.is_asked:
            return "the program compiled nothing with JAX, so that there was nothing to profile"
        if self.found.stopped_by != "end":
            return "the program began a trace of its own before ours"
        return f"the program ended before the {self.wish.start_after_s:g} s had passed after which to begin"

    def _after_ours(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """JAX records one trace at a time: the program's own comes first, and ours ends there."""

        @functools.wraps(function)
        def theirs(*args: Any, **kwargs: Any) -> Any:
            if not self.is_starting:
                self.stop("trace of the program's own")
            return function(*args, **kwargs)

        return theirs


def _later(seconds: float, what: Callable[[], None]) -> None:
    """In a thread that does not keep the program alive."""
    timer = threading.Timer(seconds, what)
    timer.daemon = True
    timer.start()
