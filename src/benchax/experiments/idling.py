"""How long devices have nothing to do in a run, as recordings of it say: the time without any operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from benchax.errors import NotMeasured
from benchax.experiments.base import Facts
from benchax.experiments.recordings import middle, record_readings
from benchax.profiling.events import read
from benchax.profiling.intervals import unions
from benchax.profiling.operations import KEEP, operations
from benchax.profiling.programs import programs
from benchax.units import percent


class Idle(NamedTuple):
    """What one recording of one run says."""

    span_s: float
    """From the first operation on any device to the end of the last."""
    shares: tuple[float, ...]
    """Of that, in the order of the devices: no operation was under way."""
    operations: int


def seen_idle(call: Callable[[], Any], devices: Sequence[Any]) -> Facts:
    """Of `call`, which is recorded, and waited for, several times."""
    return describe_idle(*record_readings(call, devices, idle_of))


def describe_idle(found: Sequence[Idle], why: str) -> Facts:
    """Of the recording of median length.

    Args:
        why: the others, if any, cannot be read.
    """
    try:
        shares = middle(found, why).shares
    except NotMeasured as error:
        return (("idle, not measured:", error.problem),)
    each = ", ".join(map(percent, shares))
    return (("idle in a profile:", f"{percent(sum(shares) / len(shares))} (by device {each})"),)


def idle_of(xspace: bytes, devices: Sequence[str]) -> Idle:
    """Reads a trace.

    Raises:
        NotMeasured: it lacks operations of a device, or the end of one.
    """
    space = read(xspace, KEEP)
    found = operations(space, programs(space))
    if missing := [name for name in devices if name not in found.devices]:
        raise NotMeasured(f"the trace has no operations of {', '.join(missing)}")
    if found.is_open.any():
        raise NotMeasured("the trace does not say when some operations ended")
    order = np.argsort(found.start_ps, kind="stable")
    start, end, device = (column[order] for column in (found.start_ps, found.end_ps, found.device))
    busy = unions(device.tolist(), start.tolist(), end.tolist())
    span = int(end.max() - start.min())
    shares = tuple(1 - busy[found.devices.index(name)][1] / span for name in devices)
    return Idle(span / 1e12, shares, len(found))
