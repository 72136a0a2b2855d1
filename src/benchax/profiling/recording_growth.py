"""Whether a recording holds enough events to end before its time, judged by the memory of its process.

JAX does not report the number of events until it has written the recording. Until then, an event takes 126 bytes (jax
0.10.2). A quarter of a million events can hold enough steps of a loop, and take 2 s to write. benchax can read at most
1.3 million. With steps of 5 µs, a recording of 5 s took 6 GB and a minute.
"""

from __future__ import annotations

import psutil

FIRST_GROWTH, MOST_GROWTH = 32 << 20, 160 << 20
"""Bytes after which a recording is looked at: the first one, and a later one if that did not hold enough steps."""
FIRST_EVENTS = 50_000
"""With fewer it was the program itself that has grown."""
LEAST_GROWTH, STEADILY = 2 << 20, 3
"""Events come steadily if each of this many checks finds at least this much more memory. A program itself grows in
leaps."""
GROWN = 2 * FIRST_GROWTH
"""At least, before a program is looked at again that has grown by itself, as it may do so again."""


class RecordingGrowth:
    """Tracks the recordings of this process, one after another."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._before = self._growth = self._steadily = 0
        self._limit = FIRST_GROWTH

    def begin(self) -> None:
        """A recording begins; or JAX has compiled something, and what a compiler takes are no events."""
        self._before = self._process.memory_info().rss
        self._growth = self._steadily = 0

    def is_enough(self) -> bool:
        """To be asked every now and then, while nothing is compiled."""
        earlier, self._growth = self._growth, self._process.memory_info().rss - self._before
        self._steadily = self._steadily + 1 if self._growth - earlier >= LEAST_GROWTH else 0
        is_large = self._growth >= MOST_GROWTH or self._steadily >= STEADILY
        return is_large and self._growth >= self._limit

    def is_of_events(self, n_events: int) -> bool:
        """Was it, in a recording that was ended for it? How far the next one may grow depends on it."""
        found = n_events >= FIRST_EVENTS
        self._limit = MOST_GROWTH if found else max(GROWN, 2 * self._growth)
        return found
