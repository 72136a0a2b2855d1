"""The topmost layer at each moment of a recording: a device at work, a compilation, a transfer, or JAX's own work.

Each layer takes the time that the layers above it leave, so that a moment counts once. Time without a layer is the
program's own Python, which `sampled_python.py` splits further.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from benchax.profiling.coverage import Coverage, unite, unite_all
from benchax.profiling.host_thread import HostThread, program_name
from benchax.profiling.operations import Operations
from benchax.profiling.runs import PS
from benchax.protobuf import Ints
from benchax.results.profile import Run
from benchax.results.steps import PartKind

LAYERS: tuple[PartKind, ...] = ("device", "compile", "transfer", "dispatch")
"""Topmost first."""
COPIES = "Memcpy"
"""Begins what CUPTI calls the device time of a transfer: MemcpyH2D."""


@dataclass(frozen=True, eq=False)
class StepLayers:
    """The topmost layer at each time."""

    united: tuple[Coverage, ...]
    """The time of each layer together with the layers above it."""
    own: tuple[Coverage, ...]

    def lengths(self, begin: Ints, end: Ints) -> NDArray[np.int64]:
        """A row for each layer, and one for what no layer covers; a column for each stretch."""
        reached = [np.zeros(len(begin), np.int64), *(one.length_between(begin, end) for one in self.united)]
        return np.diff(np.stack([*reached, end - begin]), axis=0)

    def at(self, times: Ints) -> NDArray[np.int64]:
        """Which layer is topmost at each moment; `len(LAYERS)` for none."""
        found = np.full(len(times), len(self.own))
        for i in reversed(range(len(self.own))):
            found[self.own[i].holds(times)] = i
        return found


def stack_layers(found: Operations, host: HostThread) -> StepLayers:
    codes = [i for i, text in enumerate(found.texts) if text.startswith(COPIES)]
    is_copy = np.isin(found.name, codes) & (found.module < 0)
    work = unite(found.start_ps[~is_copy], found.end_ps[~is_copy])
    copies = unite(found.start_ps[is_copy], found.end_ps[is_copy])
    own = (work, host.compiles, unite_all(host.transfers, copies), host.jax)
    return StepLayers(tuple(accumulate(own, unite_all)), own)


def pending(host: HostThread, runs: Sequence[Run]) -> Coverage:
    """When programs had been called and were not yet done on the first device: calls and runs in their order."""
    starts, ends = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    by_module: dict[str, list[Run]] = defaultdict(list)
    for run in runs:
        if run.device == runs[0].device:
            by_module[run.module].append(run)
    for i, name in enumerate(host.names):
        called = host.call_end[host.call_name == i]
        mine = by_module.get(program_name(name), [])
        both = min(len(called), len(mine))
        if both:
            starts.append(called[-both:])
            ends.append(np.array([int((run.start_s + run.device_s) * PS) for run in mine[-both:]], np.int64))
    return unite(np.concatenate(starts), np.concatenate(ends))
