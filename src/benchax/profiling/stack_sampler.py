"""Writes the current Python line of the user's thread into the trace, every few milliseconds.

`PacedSampler` reads its stack, and `StackSampler` leaves an event whose name is the stack (`host_thread.py`). The
event's stats hold the thread's processor time since the last sample, and the delay of the sample.
"""

from __future__ import annotations

import contextlib
import inspect
import opcode
import sys
import threading
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import jax

from benchax.profiling.host_thread import BETWEEN, ENDED, SAMPLE, SampledFrame, encode
from benchax.source_files import is_generated, owner_of


def annotate(name: str, **stats: Any) -> None:
    """Leaves an event in the trace that is being recorded."""
    with jax.profiler.TraceAnnotation(name, **stats):
        pass


INTERVAL_S = 0.005
MOST_SHARE = 0.003
"""The default share of the time that samples can take. On a busy machine the program loses about twice as much again:
it gives Python's lock away, and finds its caches cold. With 0.005 a loop took 1.5 % more processor time
(RESULTS.md)."""
FIRST_COST_S = 1e-4
"""The expected cost of a sample before the first one. If it were 0, the first samples would come too often."""
RECENT = 0.1
"""The weight of the last sample in what the next one is expected to cost."""
SWITCH_S = 0.0005
_PATIENCE_S = 2.0
MOST_FRAMES = 16
"""This many of the user's innermost frames are kept."""


class PacedSampler(ABC):
    """Samples from `start` to `stop` of one thread, which `follow` may change; at first of the main thread."""

    def __init__(self, most_share: float = MOST_SHARE, switch_s: float = SWITCH_S) -> None:
        self.most_share, self.switch_s = most_share, switch_s
        self._wanted = self.thread = threading.main_thread().ident or 0
        self._over = threading.Event()
        self._runner = threading.Thread(target=self._run, name="benchax-stacks", daemon=True)
        self.used_s = self.lasted_s = 0.0
        """Once it is over: the processor time of its thread, and how long that ran."""
        self._cost_s = FIRST_COST_S
        self._switch_before = sys.getswitchinterval()

    @abstractmethod
    def sample(self, frame: FrameType, late_s: float) -> None:
        """Receives the frame that the thread is in. Its exceptions are lost, because the program must not notice
        them."""

    def follow(self, thread: int) -> None:
        """Takes effect with the next sample."""
        self._wanted = thread

    def start(self) -> None:
        """Once."""
        self._switch_before = sys.getswitchinterval()
        sys.setswitchinterval(min(self.switch_s, self._switch_before))
        self._runner.start()

    def stop(self) -> None:
        """Once; the last sample was taken."""
        self._over.set()
        self._runner.join(_PATIENCE_S)
        if (
            abs(sys.getswitchinterval() - min(self.switch_s, self._switch_before)) < 1e-9
        ):  # unless the program has set it
            sys.setswitchinterval(self._switch_before)

    def finish(self) -> None:  # noqa: B027  # only some have something to do
        """On the sampling thread, behind the last sample."""

    def _run(self) -> None:
        began = time.perf_counter()
        pause_s = INTERVAL_S
        while True:
            due, used = time.perf_counter() + pause_s, time.thread_time()
            if self._over.wait(pause_s):
                break
            late_s = time.perf_counter() - due
            with contextlib.suppress(Exception):  # there is one sample less
                self._look(late_s)
            # The first samples of a function cost more, and should not make all others rare.
            self._cost_s += RECENT * (time.thread_time() - used - self._cost_s)
            pause_s = max(INTERVAL_S, self._cost_s / self.most_share)
        self.used_s, self.lasted_s = time.thread_time(), time.perf_counter() - began
        self.finish()

    def _look(self, late_s: float) -> None:
        self.thread = self._wanted
        frame = sys._current_frames().get(self.thread)
        if frame is not None:
            self.sample(frame, late_s)


class StackSampler(PacedSampler):
    """Leaves events in the trace that is being recorded. Stopped before that ends, so that the last event is in it."""

    def __init__(self) -> None:
        super().__init__()
        self.taken = 0
        self._clock = _ThreadClock(0)
        self._before: tuple[int, int] | None = None

    def sample(self, frame: FrameType, late_s: float) -> None:
        self.taken += 1
        stats: dict[str, Any] = {"late_us": max(0, int(late_s * 1e6))}
        with contextlib.suppress(AttributeError, OSError):  # no such clock on this system, or the thread has ended
            stats |= self._processor_time()
        annotate(SAMPLE + describe_stack(frame), **stats)

    def finish(self) -> None:
        used_us, wall_us = int(self.used_s * 1e6), int(self.lasted_s * 1e6)
        annotate(ENDED, samples=self.taken, used_us=used_us, wall_us=wall_us)

    def _processor_time(self) -> dict[str, int]:
        """Returns the thread's processor time since the last sample, and the time since that sample."""
        if self._clock.thread != self.thread:
            self._clock, self._before = _ThreadClock(self.thread), None
        used, now = self._clock.read(), time.perf_counter_ns()
        before, self._before = self._before, (used, now)
        return {} if before is None else {"cpu_us": (used - before[0]) // 1000, "since_us": (now - before[1]) // 1000}


class _ThreadClock:
    """Nanoseconds in which a thread ran or was ready to run, if the system reports it; otherwise nanoseconds in which
    it ran.

    On a busy machine, a thread that computes is off the processor for a part of the time, although it waits for
    nothing.
    """

    def __init__(self, thread: int) -> None:
        self.thread = thread
        native = next((one.native_id for one in threading.enumerate() if one.ident == thread), None)
        # Linux: nanoseconds on a processor, nanoseconds in the queue for one, and how often.
        self._file = Path(f"/proc/self/task/{native}/schedstat")
        self._is_told = self._file.exists()

    def read(self) -> int:
        if not self._is_told:
            return time.clock_gettime_ns(time.pthread_getcpuclockid(self.thread))
        return sum(map(int, self._file.read_bytes().split()[:2]))


def describe_stack(frame: FrameType | None) -> str:
    """As `marks.encode` writes it, innermost first.

    The innermost frame, the one that the user's own code called to get there, and those of the user's own files.
    """
    parts: list[str] = []
    is_innermost, is_iterator_inside = True, False
    called, has_own = None, False
    while frame is not None and len(parts) < MOST_FRAMES:
        # By identity: the hash of a code object goes through all its constants.
        key = id(frame.f_code), frame.f_lasti
        known = _places.get(key)
        if known is None:
            known = _remember(key, frame)
        if known.is_own or (is_innermost and not known.is_ours):
            if called is not None and known.is_own:
                parts.append(called.text)
            parts.append(known.iterating if is_iterator_inside else known.text)
            is_innermost, called = False, None
        elif len(parts) == 1 and not known.is_ours and not is_innermost and not has_own:
            called = known
        has_own = has_own or known.is_own
        is_iterator_inside = known.is_iterator or (is_iterator_inside and not known.is_own)
        frame = frame.f_back
    return BETWEEN.join(parts)


class _Place(NamedTuple):
    """An instruction of a function, which many samples meet."""

    code: CodeType
    """Held, so that no other function gets its number."""
    text: str
    iterating: str
    """The same, where it waits for an iterator that is a function of Python's."""
    is_own: bool
    is_ours: bool
    is_iterator: bool


def _is_of_command_line(frame: FrameType) -> bool:
    """Returns whether a frame belongs to `python -c "..."`. Its code has the same file name as code that dataclasses
    make: <string>."""
    main = sys.modules.get("__main__")
    is_main = main is not None and frame.f_globals is main.__dict__ and not hasattr(main, "__file__")
    return is_main and "__create_fn__" not in frame.f_code.co_qualname


MOST_PLACES = 20_000
_places: dict[tuple[int, int], _Place] = {}
_FOR = opcode.opmap["FOR_ITER"]
_JUMPS = {opcode.opmap[name] for name in ("JUMP_BACKWARD", "RESUME")}
"""Where Python lets other threads run, while it calls nothing."""


def _remember(key: tuple[int, int], frame: FrameType) -> _Place:
    if len(_places) > MOST_PLACES:
        _places.clear()
    code, file = frame.f_code, frame.f_code.co_filename
    owner = owner_of(file)
    if is_generated(file) and not _is_of_command_line(frame):
        owner = "python"  # what dataclasses make of a class, and the like
    is_own = owner == "user"
    is_iterator = bool(code.co_flags & inspect.CO_GENERATOR) and code.co_name != "<genexpr>"
    at = code.co_code[frame.f_lasti] if 0 <= frame.f_lasti < len(code.co_code) else None
    found = SampledFrame(file, frame.f_lineno or 0, code.co_name, owner, at == _FOR, at in _JUMPS)
    iterating = encode((found._replace(is_iterating=True),))
    place = _Place(
        code, encode((found,)), iterating, is_own, owner == "benchax", is_iterator or code.co_name == "__next__"
    )
    _places[key] = place
    return place
