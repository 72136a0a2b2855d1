"""A thread that samples another thread every few milliseconds, at a bounded cost.

It reads `sys._current_frames()`. Between two samples it sleeps long enough to stay below its share of the time,
measured by its own processor time.

Python gives the lock to another thread only every 5 ms (`sys.getswitchinterval`). So a sample that is due in a short
piece of Python would be late: it would see the next code that releases the lock. While this thread samples, the
interval is 0.5 ms. It cannot see a piece of C that holds the lock. `sample` gets the delay as `late_s`.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from abc import ABC, abstractmethod
from types import FrameType

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

    def change_thread(self) -> None:
        """On the sampling thread, before the first sample of another one."""
        self.thread = self._wanted

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
        if self._wanted != self.thread:
            self.change_thread()
        frame = sys._current_frames().get(self.thread)
        if frame is not None:
            self.sample(frame, late_s)
