"""Arithmetic on spans of time: the time that they cover together, the gaps between them, and their nesting.

A `Coverage` is a union of spans. Layers that lie above one another are united from the top down, and each is what it
adds to those above it: `length_between(united) - length_between(above)`. So a moment counts once, under the topmost
layer, and the parts of a step add up to the step.

The nesting shows how long each call of an operation took by itself. There are two ways to find it. If the program is
known, an operation is inside a loop under two conditions. The program says so, and the loop is in progress in that run,
on any thread. XLA:CPU continues the body of a loop on another thread, and runs independent operations at the same time.
If the program is not known, an operation is inside another one of its thread if it begins there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchax.protobuf import Ints

# ---- groups of rows ---------------------------------------------------------------------------------------------
#
# `np.unique(axis=0)` compares rows as bytes: 3 s for a million of three columns. Columns of a trace have few different
# values, mostly indices into a table, which can be counted instead of sorted.

SPARE = 4
"""A table may be so many times as long as the column; values that lie further apart are sorted."""


def group_rows(*columns: Ints) -> tuple[Ints, Ints]:
    """(the first row of each group, the group of each row); groups are in the order of their values."""
    group = number_rows(*columns)
    first = np.zeros(int(group.max(initial=-1)) + 1, np.int64)
    first[group[::-1]] = np.arange(len(group))[::-1]  # of several writes the last one stays
    return first, group


def number_rows(*columns: Ints) -> Ints:
    """One number for each different row, from 0 up, in the order of the values."""
    whole = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        codes, count = _number(column)
        # Numbered anew after each column, so that the products of many columns stay inside an int64.
        whole, _ = _number(whole * count + codes)
    return whole


def _number(column: Ints) -> tuple[Ints, int]:
    """(the rank of each value among the different ones, how many these are)."""
    if not len(column):
        return column.astype(np.int64), 0
    low, high = int(column.min()), int(column.max())
    if high - low >= SPARE * len(column):
        values, codes = np.unique(column, return_inverse=True)
        return codes.astype(np.int64), len(values)
    is_there = np.zeros(high - low + 1, np.bool_)
    is_there[column - low] = True
    rank = np.cumsum(is_there) - 1
    return rank[column - low], int(rank[-1]) + 1


# ---- unions -----------------------------------------------------------------------------------------------------


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


# ---- what runs inside what ---------------------------------------------------------------------------------------


def self_times(
    group: list[int],
    start: list[int],
    end: list[int],
    names: Sequence[int] = (),
    inside: Sequence[frozenset[int] | None] | None = None,
) -> tuple[list[int], list[int]]:
    """(self time, depth) of intervals that are sorted by group, start, and end backwards.

    An interval is inside another one of its group if it begins there. Rounded clocks can make it end after the outer
    one. The part after that end is not subtracted from the outer one. Two at once are subtracted once.

    Args:
        names: of the intervals, for `inside`.
        inside: for each interval, the names that can be inside it, as in the body of a loop. Without it, all can be.
    """
    own = [b - a for a, b in zip(start, end, strict=True)]
    depth = [0] * len(own)
    covered: dict[int, int] = {}
    under_way: list[int] = []
    current: int | None = None
    for i, (g, a, b) in enumerate(zip(group, start, end, strict=True)):
        if g != current:
            current, under_way = g, []
        under_way = [j for j in under_way if end[j] > a]
        around = under_way if inside is None else [j for j in under_way if names[i] in (inside[j] or ())]
        if around:
            outer = around[-1]
            until = max(a, covered.get(outer, 0))
            own[outer] -= max(0, min(b, end[outer]) - until)
            covered[outer] = max(until, b)
            depth[i] = len(around)
        if inside is None or inside[i]:
            under_way.append(i)
    return own, depth
