"""Notes what lines of Python a program is at between its calls: loading a batch, stepping through an environment.

While calls are counted, the main thread is looked at every few milliseconds (`profiling/paced_sampler.py`). Where JAX
or this toolkit is on its stack it dispatches, compiles, waits or is watched; else the host works, or waits for
something else than the device. What lies before the first call of a line has set the program up, and does not count.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter
from types import FrameType
from typing import Any

from benchax.profiling.paced_sampler import PacedSampler
from benchax.source_files import is_generated, owner_of
from benchax.watching.transfers import clock

MOST_SHARE = 0.01
"""Of the time: less than what counting calls takes anyway."""
SWITCH_S = 5e-5
"""What the host does between two waits may be short: with the usual pace the sample would be taken in the wait."""
MOST_STACKS = 500
"""Of one line that calls; rarer ones are left out, and their time is counted."""
MOST_TOLD = 50

Stack = tuple[str, ...]
"""Lines of the user's, file:line, outermost first."""


@dataclass
class HostLine:
    """What lay before the calls of one line."""

    count: int = 0
    elapsed_s: float = 0.0
    """Since the call before, whatever that was."""
    host_s: float = 0.0
    """Of these: at lines of the user's."""
    stacks: dict[Stack, float] = field(default_factory=dict[Stack, float])
    """Seconds of each."""

    def most_spent(self) -> list[tuple[Stack, float]]:
        return heapq.nlargest(MOST_TOLD, self.stacks.items(), key=lambda one: one[1])


class HostSampler(PacedSampler):
    """Keeps the stacks since the last call."""

    def __init__(self) -> None:
        super().__init__(MOST_SHARE, SWITCH_S)
        self._stacks: dict[Stack, float] = {}
        self._last = perf_counter()

    def sample(self, frame: FrameType, late_s: float) -> None:
        now = perf_counter()
        elapsed_s, self._last = now - self._last, now
        if stack := _stack_of_host(frame):
            self._stacks[stack] = self._stacks.get(stack, 0.0) + elapsed_s

    def take(self) -> Mapping[Stack, float]:
        """Seconds of each stack since this was asked last."""
        # No lock: a program that forks may do so at any time, and would find it locked. At worst a sample is lost.
        taken, self._stacks = self._stacks, {}
        return taken


class HostWork:
    """What was seen of the main thread so far."""

    def __init__(self) -> None:
        self.lines: dict[str, HostLine] = {}
        self._sampler: HostSampler | None = None
        self._before: float | None = None
        self._main = threading.main_thread().ident

    def open(self) -> None:
        """From now on."""
        self._before = None
        self._sampler = HostSampler()
        self._sampler.start()

    def close(self) -> None:
        """Until `open` is called again."""
        if self._sampler is not None:
            self._sampler.stop()
            self._sampler = None

    def note_call(self, where: str | None) -> None:
        """Of a jitted function, before it runs."""
        if threading.get_ident() != self._main or self._sampler is None or where is None:
            return
        stacks, now, before = self._sampler.take(), clock(), self._before
        self._before = now
        line = self.lines.setdefault(where, HostLine())
        line.count += 1
        if line.count == 1 or before is None:
            return
        line.elapsed_s += now - before
        line.host_s += sum(stacks.values())
        for stack, seconds in stacks.items():
            if stack in line.stacks or len(line.stacks) < MOST_STACKS:
                line.stacks[stack] = line.stacks.get(stack, 0.0) + seconds

    def asdict(self) -> list[Mapping[str, Any]]:
        return [
            {
                "where": where, "count": line.count, "elapsed_s": line.elapsed_s, "host_s": line.host_s,
                "stacks": [[list(stack), s] for stack, s in line.most_spent()],
            }
            for where, line in self.lines.items()
        ]  # fmt: skip


def _stack_of_host(frame: FrameType | None) -> Stack:
    """Empty where JAX is on it, or no line of the user's."""
    lines: list[str] = []
    while frame is not None:
        owner = owner_of(frame.f_code.co_filename)
        if owner in ("jax", "benchax"):
            return ()
        if owner == "user" and not is_generated(frame.f_code.co_filename):
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back
    return tuple(reversed(lines))
