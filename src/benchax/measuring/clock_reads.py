"""Finds a function's readings of the clock while it is traced: a compiled program keeps these values for good.

Two traces do not show it: in float32 the seconds since 1970 step by 128. So Python reports the called functions
(`sys.setprofile`), and the user's own lines that read a clock are reported by name. The two traces find random numbers:
a generator with a fixed seed gives the same ones each time, and is fine.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from benchax.source_files import is_library

# Of Python's own modules, all of which are written in C: Python says so before each call of one.
TIME = (
    "time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time",
    "process_time_ns", "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns", "localtime", "gmtime",
    "ctime",
)  # fmt: skip
DATETIME = ("now", "utcnow", "today")
_NAMES = frozenset((*TIME, *DATETIME))


class ClockRead(NamedTuple):
    """One reading of a clock by a line of the user's."""

    name: str
    """time.time"""
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.name} at {self.file}:{self.line}"


def why_not_watched() -> str:
    """Why `watch_clock_reads` would find nothing now; empty if it looks."""
    # Up to Python 3.11: there cProfile is no function, and could not be put back.
    before = sys.getprofile()
    return "a profiler (cProfile) is watching this process" if before is not None and not callable(before) else ""


@contextmanager
def watch_clock_reads() -> Iterator[list[ClockRead]]:
    """The readings of the block, each line once; complete when the block has ended. None if `why_not_watched`."""
    found: dict[ClockRead, None] = {}
    reads: list[ClockRead] = []

    def note(frame: Any, event: str, called: Any) -> None:
        # Called four times for each call in a trace, so the names come first.
        if event != "c_call" or getattr(called, "__name__", "") not in _NAMES:
            return
        if (name := _name_of(called)) and not is_library(frame.f_code.co_filename):
            found.setdefault(ClockRead(name, frame.f_code.co_filename, frame.f_lineno))

    if why_not_watched():
        yield reads
        return
    before = sys.getprofile()
    # A debugger's own hook is put back afterwards; while we look it does not see these calls.
    sys.setprofile(note)
    try:
        yield reads
    finally:
        sys.setprofile(before)
        reads.extend(found)


def _name_of(called: Any) -> str:
    """time.time, datetime.now; empty for all that reads no clock."""
    name, owner = getattr(called, "__name__", ""), getattr(called, "__self__", None)
    if name in TIME and getattr(owner, "__name__", "") == "time":
        return f"time.{name}"
    if name in DATETIME and isinstance(owner, type) and owner.__module__ == "datetime":
        return f"{owner.__name__}.{name}"
    return ""
