"""Finds the number of devices of a program, and the time that each one works and is in collectives in one call.

The time comes from one recording of several calls by JAX's profiler, in a separate pass. `profiling/communication.py`
defines communication and exposed communication.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax

from benchax.errors import FormatError, NotAvailable, NotMeasured, UsageError
from benchax.measuring.inputs import meshes_of
from benchax.measuring.timers.base import Subject
from benchax.model import Devices, DeviceShare
from benchax.program.work import count_devices
from benchax.units import plural

CALLS = 5
SPOILS = ("no-operations", "events-dropped", "open-calls")
"""Remarks on a recording that lacks some of the work."""


def is_fake(devices: Sequence[Any]) -> bool:
    """Do several of them share one processor? On a CPU each process has one that is real."""
    local = [d for d in devices if d.platform == "cpu" and d.process_index == jax.process_index()]
    return len(local) > 1


def devices_of(subject: Subject) -> Devices | None:
    """None of a program on one device."""
    arrays = [
        leaf for leaf in (*subject.inputs.data, *jax.tree.leaves(subject.returned)) if isinstance(leaf, jax.Array)
    ]
    held = {device for array in arrays for device in array.sharding.device_set}
    count = max(count_devices(subject.hlo), len(held))
    if count < 2:
        return None
    return Devices(count, is_fake(list(held) if len(held) == count else jax.devices()), meshes_of(arrays))


def record_shares(subject: Subject, count: int) -> tuple[DeviceShare, ...]:
    """Records the activity of each of `count` devices in one call, on average of several calls.

    Raises:
        NotMeasured: it could not be recorded, or the recording lacks a device or some of its work.
    """
    from benchax.profiling.session import session  # noqa: PLC0415  # with the reader of traces, 0.1 s
    from benchax.profiling.trace import profile_of  # noqa: PLC0415

    calls = [subject.ready() for _ in range(CALLS)]
    try:
        with session() as recording:
            for call in calls:
                jax.block_until_ready(call())
        profile = profile_of(recording.xspace)
    except (UsageError, NotAvailable, FormatError) as error:
        raise NotMeasured(error.problem) from error
    for remark in profile.remarks:
        if remark.code in SPOILS:
            raise NotMeasured(remark.message)
    if len(profile.devices) != count:
        there = plural(len(profile.devices), "device")
        raise NotMeasured(f"the recording has operations of {there}, and the program runs on {count}")
    return tuple(
        DeviceShare(d.name, d.busy_s / CALLS, _each(d.communication_s), _each(d.exposed_s)) for d in profile.devices
    )


def _each(total_s: float | None) -> float | None:
    return None if total_s is None else total_s / CALLS
