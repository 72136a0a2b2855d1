"""Samples the lines of your code that the main thread runs between calls, such as loading a batch.

Samples in which JAX or benchax is on the stack are left out: there the program dispatches, compiles, or waits.
"""

from __future__ import annotations

from time import perf_counter
from types import FrameType

from benchax.auditing.recorder.log import Event, Log
from benchax.profiling.paced_sampler import PacedSampler
from benchax.source_files import is_generated, owner_of

MOST_SHARE = 0.01
"""The share of the time that looking can take. Watching calls takes more than that."""
SWITCH_S = 5e-5
"""The work of the host between two waits may be short: with Python's usual pace, samples would fall into the waits."""


class HostSampler(PacedSampler):
    """Adds a "sample" to the log for each look at the main thread; `note` is (lines outermost first, seconds)."""

    def __init__(self, log: Log) -> None:
        super().__init__(MOST_SHARE, SWITCH_S)
        self._log = log
        self._last = perf_counter()

    def sample(self, frame: FrameType, late_s: float) -> None:
        now = perf_counter()
        elapsed_s, self._last = now - self._last, now
        if stack := _host_lines(frame):
            self._log.add(Event("sample", "", stack[-1], now, note=(stack, elapsed_s)))


def _host_lines(frame: FrameType | None) -> tuple[str, ...]:
    lines: list[str] = []
    while frame is not None:
        owner = owner_of(frame.f_code.co_filename)
        if owner in ("jax", "benchax"):
            return ()
        if owner == "user" and not is_generated(frame.f_code.co_filename):
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
        frame = frame.f_back
    return tuple(reversed(lines))
