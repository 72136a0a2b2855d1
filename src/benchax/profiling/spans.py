"""Arithmetic on spans of time: the time that they cover together, the gaps between them, and their nesting.

The nesting shows how long each call of an operation took by itself. There are two ways to find it. If the program is
known, an operation is inside a loop under two conditions. The program says so, and the loop is in progress in that run,
on any thread. XLA:CPU continues the body of a loop on another thread, and runs independent operations at the same time.
If the program is not known, an operation is inside another one of its thread if it begins there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchax.profiling.grouping import number_rows
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


# ---- what runs inside what ---------------------------------------------------------------------------------------


class CallColumns(NamedTuple):
    """Columns of one length, sorted by device, start, and end backwards."""

    thread: Ints
    device: Ints
    program: Ints
    run: Ints
    name: Ints
    start: Ints
    end: Ints


def nest(calls: CallColumns, insides: Mapping[int, Mapping[int, frozenset[int]]]) -> tuple[Ints, Ints]:
    """(self time, depth) of each call.

    Args:
        calls: the calls.
        insides: program → operation → operations inside it; the programs that are known.
    """
    own, depth = calls.end - calls.start, np.zeros(len(calls.name), np.int64)
    is_known = np.isin(calls.program, list(insides))
    for chosen, method in ((is_known, _by_program), (~is_known, _by_thread)):
        # Stable: what is sorted by start stays so within each group.
        group = calls.thread if method is _by_thread else number_rows(calls.device, calls.program, calls.run)
        at = np.flatnonzero(chosen)
        at = at[np.argsort(group[at], kind="stable")]
        if len(at):
            own[at], depth[at] = method(CallColumns(*(column[at] for column in calls)), group[at], insides)
    return own, depth


def _by_thread(
    calls: CallColumns, group: Ints, insides: Mapping[int, Mapping[int, frozenset[int]]]
) -> tuple[list[int], list[int]]:
    return self_times(group.tolist(), calls.start.tolist(), calls.end.tolist())


def self_times(group: list[int], start: list[int], end: list[int]) -> tuple[list[int], list[int]]:
    """(self time, depth) of intervals that are sorted by group, start, and end backwards.

    An interval is inside another one of its group if it begins there. Rounded clocks can make it end after the outer
    one. The part after that end is not subtracted from the outer one.
    """
    own = [b - a for a, b in zip(start, end, strict=True)]
    depth = [0] * len(own)
    stack: list[int] = []
    current: int | None = None
    for i, a in enumerate(start):
        if group[i] != current:
            current = group[i]
            stack = []
        while stack and end[stack[-1]] <= a:
            stack.pop()
        if stack:
            outer = stack[-1]
            own[outer] -= min(end[i], end[outer]) - a
            depth[i] = len(stack)
        stack.append(i)
    return own, depth


class _Loop(NamedTuple):
    """A call under way that others may be inside of."""

    call: int
    end: int
    inside: frozenset[int]


def _by_program(
    calls: CallColumns, group: Ints, insides: Mapping[int, Mapping[int, frozenset[int]]]
) -> tuple[list[int], list[int]]:
    """As `self_times`, where only an operation of the body is inside a loop; two at once are taken off once."""
    start, end, names, programs = (column.tolist() for column in (calls.start, calls.end, calls.name, calls.program))
    own = [b - a for a, b in zip(start, end, strict=True)]
    depth = [0] * len(own)
    covered: dict[int, int] = {}
    loops: list[_Loop] = []
    current: int | None = None
    for i, (g, a, b) in enumerate(zip(group.tolist(), start, end, strict=True)):
        if g != current:
            current, loops = g, []
        loops = [loop for loop in loops if loop.end > a]
        around = [loop for loop in loops if names[i] in loop.inside]
        if around:
            outer = around[-1]
            until = max(a, covered.get(outer.call, 0))
            own[outer.call] -= max(0, min(b, outer.end) - until)
            # Two that ran beside each other inside the loop are taken off it once.
            covered[outer.call] = max(until, b)
            depth[i] = len(around)
        if inside := insides[programs[i]].get(names[i]):
            loops.append(_Loop(i, b, inside))
    return own, depth
