"""Memory over time: what was alive while a program was recorded, reading by reading. Plain data.

`None` is "not known". Between two readings anything may have happened, which is why their distances belong to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import Literal

Kind = Literal["live_arrays", "in_use", "peak_in_use", "resident"]


@dataclass(frozen=True)
class Column:
    """One quantity at all times of a `Timeline`."""

    kind: Kind
    """live_arrays: what Python holds of arrays. in_use and peak_in_use: what the allocator of an accelerator says, the
    peak since its process began. resident: the pages of the process."""
    device: str
    """cpu:0. Empty: the whole process."""
    sizes_bytes: tuple[int | None, ...]


@dataclass(frozen=True)
class Timeline:
    """Readings in the order in which they were taken."""

    times_s: tuple[float, ...]
    """When each began, since the recording began."""
    reading_s: tuple[float, ...]
    """Processor time of each reading: what the program's Python lost by it."""
    columns: tuple[Column, ...]
    ended_because: str = ""
    """Why there were no more readings before the end; empty where nothing went wrong."""

    @property
    def incomplete(self) -> str:
        """A sentence, where readings ended before the recording did; else empty."""
        return f"memory was read for a part of the time only: {self.ended_because}" if self.ended_because else ""

    @property
    def interval_s(self) -> float | None:
        """The median distance of two readings."""
        return median(self._distances()) if len(self.times_s) > 1 else None

    @property
    def longest_gap_s(self) -> float | None:
        """What came and went in there was not seen."""
        return max(self._distances(), default=None)

    @property
    def share(self) -> float | None:
        """Of the time from the first reading to the last, the part that readings took."""
        span = self.times_s[-1] - self.times_s[0] if self.times_s else 0.0
        return sum(self.reading_s[:-1]) / span if span > 0 else None

    def without(self, kind: Kind) -> tuple[str, ...]:
        """Devices of which this is not known."""
        devices = dict.fromkeys(column.device for column in self.columns if column.kind == "live_arrays")
        known = {column.device for column in self.columns if column.kind == kind}
        return tuple(device for device in devices if device not in known)

    def _distances(self) -> list[float]:
        return [after - before for before, after in pairwise(self.times_s)]
