"""Starts the processes of one host together: with a file in memory that all of them have mapped.

Each writes the number of the start that it waits for. When all have done so, the first process writes a time a little
later, and each process busy-waits until then. All processes of a host share one monotonic clock. So no process is
woken, and the only difference is how late each reads the clock (the window of Hunold & Carpen-Amarie, IEEE TPDS 2016).
Processes that waited for a message instead would leave a barrier a hundred microseconds apart.

Over several hosts there is no such clock and no such memory: `remote_start.py`.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns

from benchax.errors import NotMeasured
from benchax.units import seconds

LEAD_NS = 50_000
"""From when all are there to the start: longer than it takes to read of it."""
SPIN_NS = 3_000_000
"""A process waits this long before it offers its core to a process that might not have one. The times were tried
alternately on two busy cores (load 10). The median skew was 410 µs if the core is offered at once, and 0.05 to 0.08 µs
after 0.3 and 3 ms. Nine of ten starts were within 4 to 6 ms, 3 to 5 ms, and 0.15 ms."""
LINE = 8
"""Numbers of 64 bits in a line of a processor's cache: no two processes write to one line."""
STOP = -1
NS = 1e9


def clock_id() -> str:
    """The same in all processes whose monotonic clocks are one: of this boot of this host."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def make_file(folder: Path, count: int) -> Path:
    """A start line for that many processes."""
    path = folder / "start-line"
    path.write_bytes(bytes(8 * LINE * (count + 1)))
    return path


def start_at(begin_ns: int) -> int:
    """Waits for that time with open eyes; the time that it became."""
    while (now := perf_counter_ns()) < begin_ns:
        pass
    return now


class StartLine:
    """One process's place at it."""

    def __init__(self, path: Path, rank: int, count: int, patience_s: float) -> None:
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self._numbers = memoryview(self._memory).cast("q")
        self.rank, self.count, self.patience_s = rank, count, patience_s
        self._started = 0

    def start(self, is_last: bool = False) -> int | None:
        """Waits for the others; nanoseconds of the clock when this process began. None: there are no more starts.

        Args:
            is_last: of the first process, which decides for all: no more are wanted.

        Raises:
            NotMeasured: one of the others is not there within `patience_s`; says which.
        """
        self._started += 1
        number, head, numbers = self._started, LINE * self.count, self._numbers
        numbers[LINE * self.rank] = number
        if self.rank == 0:
            self._wait(lambda: all(numbers[LINE * rank] >= number for rank in range(self.count)), number)
            numbers[head + 1] = STOP if is_last else perf_counter_ns() + LEAD_NS
            numbers[head] = number
        else:
            self._wait(lambda: numbers[head] >= number, number)
        begin = numbers[head + 1]
        return None if begin == STOP else start_at(begin)

    def align(self) -> None:
        """There is nothing to do: the clock is one."""

    def to_common(self, times_ns: list[int]) -> tuple[int, ...]:
        return tuple(times_ns)

    @property
    def error_s(self) -> float:
        return 0.0

    def close(self) -> None:
        """The file goes with its folder."""

    def _wait(self, is_over: Callable[[], bool], number: int) -> None:
        begun = perf_counter_ns()
        while not is_over():
            waited = perf_counter_ns() - begun
            # Not from the beginning: who gives its core away just before the start comes back late.
            if waited > SPIN_NS:
                os.sched_yield()
            if waited > self.patience_s * NS:
                missing = [rank for rank in range(self.count) if self._numbers[LINE * rank] < number]
                names = ", ".join(f"rank {rank}" for rank in missing or [0])
                raise NotMeasured(f"{names} did not come to start {number} within {seconds(self.patience_s)}")
