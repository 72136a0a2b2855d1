"""How much of a stretch of time a set of spans covers: what a step is split by.

Layers that lie above one another are united from the top down, and each is what it adds to those above it:
`length_between(united) - length_between(above)`. So a moment counts once, under the topmost layer, and the parts of a
step add up to the step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchax.protobuf import Ints


@dataclass(frozen=True, eq=False)
class Coverage:
    """Spans in order, none of which touches another."""

    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    @property
    def length(self) -> int:
        return int((self.end - self.start).sum())

    def length_between(self, begin: Ints, end: Ints) -> Ints:
        """How much of each stretch the spans cover."""
        return self._until(end) - self._until(begin)

    def holds(self, times: Ints) -> NDArray[np.bool_]:
        """Whether each moment lies in one of the spans."""
        at = self.index(times)
        return (at >= 0) & (times < self.end[np.maximum(at, 0)]) if len(self) else np.zeros(len(times), np.bool_)

    def index(self, times: Ints) -> Ints:
        """Which span begins last before each moment; -1 before the first."""
        return np.searchsorted(self.start, times, side="right") - 1

    def gaps(self, begin: int, end: int) -> Coverage:
        """Returns the parts of a stretch that the spans do not cover."""
        start, stop = np.clip(self.start, begin, end), np.clip(self.end, begin, end)
        starts, ends = np.concatenate([[begin], stop]), np.concatenate([start, [end]])
        chosen = ends > starts
        return Coverage(starts[chosen], ends[chosen])

    def _until(self, times: Ints) -> Ints:
        """How much is covered before each moment."""
        if not len(self):
            return np.zeros(len(times), np.int64)
        before = np.concatenate([[0], np.cumsum(self.end - self.start)])
        at = self.index(times)
        inside = np.minimum(times, self.end[np.maximum(at, 0)]) - self.start[np.maximum(at, 0)]
        return np.where(at >= 0, before[np.maximum(at, 0)] + inside, 0)


def unite(start: Ints, end: Ints) -> Coverage:
    """The union of spans in any order; those without length are left out."""
    chosen = end > start
    order = np.argsort(start[chosen], kind="stable")
    starts, ends = start[chosen][order], end[chosen][order]
    if not len(starts):
        return Coverage(starts, ends)
    reach = np.maximum.accumulate(ends)
    is_first = np.concatenate([[True], starts[1:] > reach[:-1]])
    last = np.concatenate([np.flatnonzero(is_first)[1:] - 1, [len(starts) - 1]])
    return Coverage(starts[is_first], reach[last])


def unite_all(*parts: Coverage) -> Coverage:
    """The union of several."""
    return unite(np.concatenate([part.start for part in parts]), np.concatenate([part.end for part in parts]))
