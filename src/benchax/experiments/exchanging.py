"""Which share of the time of several devices is communication, as recordings of a call say, and which is exposed.

What these are is defined in `profiling/communication.py`. Tried on fake devices of a CPU, whose shares mean nothing,
and on made traces; not on several accelerators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from benchax.errors import NotMeasured
from benchax.experiments.base import Facts
from benchax.experiments.recordings import middle, record_readings
from benchax.profiling.trace import profile_of
from benchax.results.profile import Device
from benchax.units import percent

SPOILS = (
    "no-operations",
    "events-dropped",
    "open-calls",
    "no-programs",
    "no-communication",
    "half-communications",
    "exposed-unknown",
)
"""Remarks on a trace whose shares are not to be told."""


class Shares(NamedTuple):
    """What one recording of one call says; both are parts of the time in which a device was busy, over all devices."""

    communication: float
    exposed: float
    operations: int


def seen_communication(call: Callable[[], Any], devices: Sequence[Any]) -> Facts:
    """Of `call`, which is recorded, and waited for, several times."""
    return describe_shares(*record_readings(call, devices, shares_of))


def describe_shares(found: Sequence[Shares], why: str) -> Facts:
    """Of the recording with the median share.

    Args:
        why: the others, if any, cannot be read.
    """
    try:
        communication, exposed, _ = middle(found, why)
    except NotMeasured as error:
        return (("communication, not measured:", error.problem),)
    return (("communication:", f"{percent(communication)} of the device time, {percent(exposed)} exposed"),)


def shares_of(xspace: bytes, devices: Sequence[str]) -> Shares:
    """Reads a trace of a program that communicates.

    Raises:
        NotMeasured: it lacks operations of a device, or what would say which of them communicate.
    """
    p = profile_of(xspace)
    for remark in p.remarks:
        if remark.code in SPOILS:
            raise NotMeasured(remark.message)
    found = {device.name: device for device in p.devices}
    if missing := [name for name in devices if name not in found]:
        raise NotMeasured(f"the trace has no operations of {', '.join(missing)}")
    return _shares([found[name] for name in devices], sum(op.calls for op in p.ops))


def _shares(devices: Sequence[Device], operations: int) -> Shares:
    busy_s = sum(device.busy_s for device in devices)
    communication_s = sum(device.communication_s or 0.0 for device in devices)
    if not communication_s:
        raise NotMeasured("the trace holds none of the collectives that the program has")
    return Shares(communication_s / busy_s, sum(device.exposed_s or 0.0 for device in devices) / busy_s, operations)
