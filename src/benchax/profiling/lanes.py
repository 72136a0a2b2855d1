"""What ran when: the calls of a trace by device and thread, the longest of them, for a timeline."""

from __future__ import annotations

import numpy as np

from benchax.profiling.grouping import group_rows
from benchax.profiling.operations import Operations
from benchax.profiling.runs import PS
from benchax.profiling.space import Space
from benchax.results.profile import Lane

MOST_CALLS = 3000
"""So many of the longest are kept of a recording: what is shorter cannot be seen beside them."""


def lanes_of(space: Space, found: Operations) -> tuple[Lane, ...]:
    """One lane for each device and thread, in the order of devices; calls by their start."""
    if not len(found):
        return ()
    threads = [line.name for plane in space.planes for line in plane.lines]
    lengths = found.end_ps - found.start_ps
    # Outer calls first among equals: what holds others explains more.
    order = np.lexsort((found.depth, -lengths))
    is_kept = np.zeros(len(found), bool)
    is_kept[order[:MOST_CALLS]] = True
    first, _ = group_rows(found.device, found.thread)
    pairs = zip(found.device[first].tolist(), found.thread[first].tolist(), strict=True)
    return tuple(_lane(found, threads, device, thread, is_kept) for device, thread in pairs)


def _lane(found: Operations, threads: list[str], device: int, thread: int, is_kept: np.ndarray) -> Lane:
    mine = (found.device == device) & (found.thread == thread)
    shown = np.flatnonzero(mine & is_kept)
    shown = shown[np.argsort(found.start_ps[shown], kind="stable")]
    return Lane(
        device=found.devices[device],
        thread=threads[thread],
        names=tuple(found.word(int(code)) for code in found.name[shown]),
        starts_s=tuple((found.start_ps[shown] / PS).tolist()),
        ends_s=tuple((found.end_ps[shown] / PS).tolist()),
        depths=tuple(found.depth[shown].tolist()),
        n_calls=int(mine.sum()),
    )
