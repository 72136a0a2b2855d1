"""A trace as columns of NumPy: planes, their lines, and the events of each line.

A plane is a device or the host. A line is a thread or a stream. An event has a name, a start, a duration and statistics
("stats") such as `hlo_op` and `run_id`. `events.py` reads the trace, and `trace.py` interprets the events.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchax.protobuf import Ints

TEXT, NUMBER, REAL = 0, 1, 2
"""Kinds of a stat. Text is kept as an index into `Space.texts`."""


class Stats(NamedTuple):
    """The stats of a line's events, one entry per stat."""

    owner: NDArray[np.int32]
    """Which event."""
    key: NDArray[np.int32]
    """Index into `Space.texts`."""
    kind: NDArray[np.uint8]
    value: Ints
    """A number; for TEXT the index into `Space.texts`, for REAL the bits of a double."""


@dataclass(frozen=True, eq=False)
class TraceLine:
    """A thread, or a stream of a device. Columns of one length: an entry per event, in the order of the file."""

    name: str
    names: Mapping[int, str]
    """The names of events, by what `name_id` holds; shared by the lines of a plane."""
    name_id: Ints
    start_ps: Ints
    """Since the earliest line of the whole space began."""
    duration_ps: Ints
    stats: Stats
    shared: Mapping[str, Mapping[int, int]]
    """Stats that belong to a name and so to all its events: stat → name_id → value, as in `Stats.value`."""
    texts: list[str] = field(repr=False)

    def __len__(self) -> int:
        return len(self.name_id)

    def text(self, key: str) -> Ints:
        """Returns, for each event, the index into `texts` of its stat `key`; -1 for those that have none."""
        return self._column(key, (TEXT,), -1)[0]

    def number(self, key: str) -> tuple[Ints, NDArray[np.bool_]]:
        """(values, which events have the stat at all)."""
        return self._column(key, (NUMBER,), 0)

    def _column(self, key: str, kinds: Collection[int], default: int) -> tuple[Ints, NDArray[np.bool_]]:
        column = np.full(len(self), default, np.int64)
        has = np.zeros(len(self), np.bool_)
        for name_id, value in self.shared.get(key, {}).items():
            of_name = self.name_id == name_id
            # Before the event's own stats, which are stronger where both are there.
            column[of_name], has[of_name] = value, True
        # A key is one text, and so one index.
        code = self.texts.index(key) if key in self.texts else -1
        chosen = (self.stats.key == code) & np.isin(self.stats.kind, list(kinds))
        column[self.stats.owner[chosen]] = self.stats.value[chosen]
        has[self.stats.owner[chosen]] = True
        return column, has


@dataclass(frozen=True, eq=False)
class Plane:
    """A device, the host, or a table of metadata."""

    name: str
    lines: tuple[TraceLine, ...]
    names: Mapping[int, str]
    """The names of events, by id."""
    display_names: Mapping[int, str]
    blobs: Mapping[str, Mapping[int, bytes]]
    """Stats of names that are bytes: stat → name id → bytes. `hlo_proto` of the plane `/host:metadata` is one."""
    numbers: Mapping[str, int]
    """Stats of the plane itself that are numbers."""
    words: Mapping[str, str]
    """Stats of the plane itself that are texts."""


@dataclass(frozen=True, eq=False)
class Space:
    """A whole trace."""

    planes: tuple[Plane, ...]
    hosts: tuple[str, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    texts: list[str]

    @property
    def n_events(self) -> int:
        return sum(len(line) for plane in self.planes for line in plane.lines)

    def plane(self, name: str) -> Plane | None:
        return next((plane for plane in self.planes if plane.name == name), None)


def count_events(space: Space, begin_ps: int, end_ps: int) -> int:
    """How many begin between the two times."""
    lines = (line for plane in space.planes for line in plane.lines if len(line))
    return sum(int(((line.start_ps >= begin_ps) & (line.start_ps < end_ps)).sum()) for line in lines)
