"""How long each run of a compiled program kept its device busy, out of a trace.

A run is the union of its operations' intervals, on whatever threads they ran. So nothing counts twice: neither the body
of a loop inside the loop, nor simultaneous work of several threads. `operations.py` finds where operations begin and
end. The last markers of a recording can be missing, because XLA writes them after it notifies the caller. Then the run
is not whole. On TPU a run is the event of its module. The TPU rule comes from documents and was not tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from benchax.errors import NotMeasured
from benchax.profiling.compiled_modules import CompiledModule
from benchax.profiling.events import Space
from benchax.profiling.operations import TPU_RUNS, Flags, Operations, module_of, operations
from benchax.profiling.spans import number_rows
from benchax.protobuf import Ints
from benchax.results import profile

STATS = ("hlo_op", "run_id", "_p", "_c")
"""The stats of the events that `device_runs` needs: `events.read(xspace, keep=STATS)`."""
PS = 1e12


class ProgramRun(NamedTuple):
    """One run of one compiled program."""

    start_ps: int
    """Since the trace began."""
    busy_s: float
    outer: int
    """Operations that began when no other of this run was under way."""
    inner: int
    """The other calls: in loops, or concurrent with others."""
    is_whole: bool = True
    """Is it known of each of its operations when it ended?"""


def device_runs(space: Space) -> list[ProgramRun]:
    """The runs of a trace in the order of their starts, over all programs; on several devices one run is one.

    Raises:
        NotMeasured: an operation cannot be assigned to a run.
    """
    found = operations(space, {}, TPU_RUNS)
    if not found.has_run.all():
        raise NotMeasured("the trace does not say which run an operation belongs to")
    return [run for _, run in _unite(found, found.run)]


def runs_by_device(space: Space, found: Operations, known: Mapping[int, CompiledModule]) -> tuple[profile.Run, ...]:
    """Each execution of each program on each device, in the order in which they began.

    Empty where the trace does not say which run an operation belongs to, as on GPU.
    """
    if any(device.startswith("tpu") for device in found.devices):
        found = operations(space, known, TPU_RUNS)
    return tuple(
        profile.Run(
            module_of(found, known, first) or _without_number(found.word(int(found.name[first]))),
            found.devices[int(found.device[first])],
            int(found.run[first]),
            run.start_ps / PS,
            run.busy_s,
        )
        for first, run in _unite(found, found.run, found.program, found.device)
    )


def on_busiest_device(runs: Sequence[profile.Run]) -> list[profile.Run]:
    """The runs on the device that works most; a program may set up on the first one, and train on another."""
    spent = Counter[str]()
    for run in runs:
        spent[run.device] += round(run.device_s * PS)
    name = max(spent, key=lambda one: spent[one], default="")
    return [run for run in runs if run.device == name]


def _without_number(name: str) -> str:
    """jit_f, of the run of a TPU that is called jit_f(123)."""
    return name.partition("(")[0]


def _unite(found: Operations, *keys: Ints) -> list[tuple[int, ProgramRun]]:
    """(its first operation, run) for each group of operations that agree in all `keys`, in the order of their starts.

    Those that belong to no run are left out.
    """
    chosen = np.flatnonzero(found.has_run)
    if not len(chosen):
        return []
    group = number_rows(*(key[chosen] for key in keys))
    order = chosen[np.lexsort((found.start_ps[chosen], group))]
    group = np.sort(group)
    begin = np.flatnonzero(np.diff(group, prepend=-1))
    runs = _runs(found.start_ps[order], found.end_ps[order], found.is_ended[order], group, begin)
    return sorted(zip(order[begin].tolist(), runs, strict=True), key=lambda each: each[1].start_ps)


def _runs(start: Ints, end: Ints, is_ended: Flags, group: Ints, begin: Ints) -> list[ProgramRun]:
    """Unites the intervals of each group.

    Args:
        start: sorted within each group, and these in a row.
        group: numbers from 0 up.
        begin: where each group begins.
    """
    latest = _latest(end, group)
    before = np.concatenate([start[:1], latest[:-1]])
    before[begin] = start[begin]
    # What begins before all earlier ones have ended runs inside one of them, or beside it: recording both costs
    # otherwise.
    outer = np.add.reduceat((start >= before).astype(np.int64), begin)
    busy_ps = np.add.reduceat(latest - np.maximum(start, before), begin)
    whole = np.logical_and.reduceat(is_ended, begin)
    inner = np.diff(begin, append=len(start)) - outer
    columns = (start[begin], busy_ps / PS, outer, inner, whole)
    return [ProgramRun(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]


def _latest(end: Ints, group: Ints) -> Ints:
    """Returns the latest end so far, separately for each group."""
    order = np.argsort(end)
    rank = np.empty(len(end), np.int64)
    rank[order] = np.arange(len(end))
    # Ranks instead of picoseconds: times the number of groups these would leave an int64.
    return end[order][np.maximum.accumulate(group * len(end) + rank) % len(end)]
