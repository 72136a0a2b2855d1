"""Notes which lines take arrays apart between calls of jitted functions, or copy them as wholes to change a part.

Told of each eager operation while calls are counted (`call_counter.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

MOST_LINES = 10
LARGE_BYTES = 1 << 20
"""Copying less takes about as long as sending the operation."""


class EagerArrays:
    """What was seen so far, by the user's line."""

    def __init__(self) -> None:
        self.taken: Counter[str] = Counter()
        """Operations of x[i]."""
        self.updates: Counter[str] = Counter()
        """Of large arrays."""
        self.copied_bytes: Counter[str] = Counter()
        """By these."""

    def note(self, name: str, leaves: Sequence[Any], where: str | None, *, is_indexing: bool) -> None:
        """An operation by its name, `x[i]` if `is_indexing`."""
        if where is None:
            return
        if is_indexing:
            self.taken[where] += 1
        # Outside of jit the array that x.at[i].set(value) begins with stays as it is.
        elif name.startswith("scatter") and leaves and getattr(leaves[0], "nbytes", 0) >= LARGE_BYTES:
            self.updates[where] += 1
            self.copied_bytes[where] += leaves[0].nbytes

    def clear(self) -> None:
        for counter in (self.taken, self.updates, self.copied_bytes):
            counter.clear()

    def asdict(self) -> dict[str, Any]:
        return {
            "taken": self.taken.most_common(MOST_LINES),
            "copied": [[where, self.updates[where], n] for where, n in self.copied_bytes.most_common(MOST_LINES)],
        }
