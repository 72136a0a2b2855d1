"""Arithmetic on intervals of time: how much of it is covered, and what lies between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from benchax.protobuf import Ints


class Hole(NamedTuple):
    """A time that no interval covers, between two that do."""

    start: int
    end: int
    before: int
    """Index of the interval that ended last before it."""
    after: int
    """Index of the one that begins behind it."""


def holes(start: Ints, end: Ints) -> list[Hole]:
    """All times between the first start and the last end that no interval covers, in order."""
    if not len(start):
        return []
    order = np.argsort(start, kind="stable")
    begins, ends = start[order], end[order]
    reach = np.maximum.accumulate(ends)
    # The interval that reaches furthest so far: the last one that raised the reach.
    furthest = np.maximum.accumulate(np.where(ends == reach, np.arange(len(order)), 0))
    at = np.flatnonzero(begins[1:] > reach[:-1])
    return [Hole(int(reach[i]), int(begins[i + 1]), int(order[furthest[i]]), int(order[i + 1])) for i in at.tolist()]


def unions(group: Sequence[int], start: Sequence[int], end: Sequence[int]) -> dict[int, tuple[int, int]]:
    """Group → (its first start, the length of the union of its intervals). Sorted by start beforehand."""
    reach: dict[int, int] = {}
    found: dict[int, tuple[int, int]] = {}
    for g, a, b in zip(group, start, end, strict=True):
        if g not in found:
            found[g], reach[g] = (a, b - a), b
        elif b > reach[g]:
            first, length = found[g]
            found[g], reach[g] = (first, length + b - max(a, reach[g])), b
    return found
