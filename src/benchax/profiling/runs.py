"""How long each run of a compiled program kept its device busy, out of a trace.

On CPU a run is the union of its operations' intervals, on whatever threads they ran, so that nothing counts twice: the
body of a loop inside the loop, nor what several threads do at once. An operation that XLA:CPU hands to other threads
has ended when the marker "end: <operation>" says so, and not with its own event, which ends when it has been handed
over: a product of matrices of 870 µs showed 250 µs without its markers (jax 0.10.2). The last markers of a recording
may be missing, since they are written after the caller has been told; then the run is not whole. On TPU a run is the
event of its module; read from documents, not tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchax.errors import NotMeasured
from benchax.profiling.space import Line, Space
from benchax.protobuf import Ints

STATS = ("hlo_op", "run_id", "_p", "_c")
"""What of the events needs to be kept for this: `events.read(xspace, keep=STATS)`."""
END = "end: "
Flags = NDArray[np.bool_]


class Run(NamedTuple):
    """One run of one compiled program."""

    start_ps: int
    """Since the trace began."""
    busy_s: float
    outer: int
    """Operations that began when no other of this run was under way."""
    inner: int
    """The others: in loops, or beside others."""
    is_whole: bool = True
    """Is it known of each of its operations when it ended?"""


def device_runs(space: Space) -> list[Run]:
    """The runs of a trace in the order of their starts, over all programs and devices.

    Raises:
        NotMeasured: an operation cannot be assigned to a run.
    """
    found = [columns for columns in (*_operations(space), *_modules(space)) if len(columns[0])]
    if not found:
        return []
    run_id, start, end, is_known = (np.concatenate(column) for column in zip(*found, strict=True))
    order = np.lexsort((start, run_id))
    borders = np.flatnonzero(np.diff(run_id[order])) + 1
    parts = (np.split(column[order], borders) for column in (start, end, is_known))
    return sorted(_run(*part) for part in zip(*parts, strict=True))


def _run(start: Ints, end: Ints, is_known: Flags) -> Run:
    """Of intervals sorted by their starts."""
    latest = np.maximum.accumulate(end)
    before = np.concatenate([start[:1], latest[:-1]])
    is_outer = start >= before
    busy_ps = int((latest - np.maximum(start, before)).sum())
    outer = int(is_outer.sum())
    return Run(int(start[0]), busy_ps / 1e12, outer, len(start) - outer, bool(is_known.all()))


def _modules(space: Space) -> Iterator[tuple[Ints, Ints, Ints, Flags]]:
    """(run, start, end, is the end known) of each run on a TPU, where the device itself has recorded it."""
    for plane in space.planes:
        for line in plane.lines:
            if plane.name.startswith("/device:TPU:") and line.name == "XLA Modules":
                run_id, has = line.number("run_id")
                _check_runs(has.all())
                yield run_id, line.start_ps, line.start_ps + line.duration_ps, has


def _operations(space: Space) -> Iterator[tuple[Ints, Ints, Ints, Flags]]:
    """(run, start, end, is the end known) of each operation on a CPU."""
    lines = [line for plane in space.planes if plane.name == "/host:CPU" for line in plane.lines]
    flows, ends = _ends(lines)
    for line in lines:
        is_op = line.text("hlo_op") >= 0
        run_id, has = line.number("run_id")
        _check_runs(has[is_op].all())
        flow, is_handed = line.number("_p")
        start = line.start_ps[is_op]
        end = start + line.duration_ps[is_op]
        place = np.searchsorted(flows, flow[is_op])
        is_known = is_handed[is_op] & (np.append(flows, -1)[place] == flow[is_op])
        ended = np.maximum(end, np.append(ends, 0)[place])
        yield run_id[is_op], start, np.where(is_known, ended, end), is_known


def _ends(lines: list[Line]) -> tuple[Ints, Ints]:
    """(number of the operation that ended, when), sorted by number."""
    flows, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for line in lines:
        named = [i for i, name in line.names.items() if name.startswith(END)]
        flow, has = line.number("_c")
        is_end = np.isin(line.name_id, named)
        is_end &= has
        flows.append(flow[is_end])
        ends.append(line.start_ps[is_end])
    flow = np.concatenate(flows)
    order = np.argsort(flow)
    return flow[order], np.concatenate(ends)[order]


def _check_runs(are_numbered: np.bool_) -> None:
    if not are_numbered:
        raise NotMeasured("the trace does not say which run an operation belongs to")
