"""Processes with several devices, and their readings of a function: times, idle devices, communication.

If there are too few real devices and the backend is the CPU, a process pretends to have as many as are needed. Then
counts and bytes of its programs match the real devices; times do not.

Idle devices and communication come from several recordings of one call by JAX's profiler. One recording can lack the
last operations, or the end of one. Each run has the same operations, so the recordings with the most operations are
complete; benchax reports the median one. Idle is the time without any operation. `profiling/communication.py` defines
communication, and which part of it is exposed. This was tried on fake devices of a CPU, whose shares of communication
mean nothing, and on made-up traces, but not on several accelerators.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, NamedTuple, Protocol, TypeVar

import jax

from benchax.errors import FormatError, NotAvailable, NotMeasured, UsageError
from benchax.experiments.processes import Condition
from benchax.measuring.fresh_stack import on_fresh_stack
from benchax.profiling.compiled_modules import programs
from benchax.profiling.events import read
from benchax.profiling.memory import device_name
from benchax.profiling.operations import KEEP, operations
from benchax.profiling.session import session
from benchax.profiling.spans import unite
from benchax.profiling.trace import profile_of
from benchax.results.experiment import Facts, Point
from benchax.results.profile import Device
from benchax.stats.intervals import median_interval, quantile
from benchax.units import percent

MOST_DEVICES = 64
# Of fewer than six readings no two enclose the median with 95 %.
LEAST_READINGS, MOST_READINGS, READING_S = 6, 50, 1.0
_FAKE = re.compile(r"--xla_force_host_platform_device_count=\S*")


@dataclass(frozen=True)
class DeviceReading:
    """A worker's readings of the function, for one way to use its devices."""

    facts: Facts = ()
    time: tuple[float | None, float | None, float | None] = (None, None, None)
    """As `time_calls` has it; nothing where the devices are fake."""
    why: str = ""
    """Why it could not be tried."""

    def point(self, x: int, label: str) -> Point:
        facts = (("not available:", self.why),) if self.why else self.facts
        return Point(x, label, *self.time, facts=facts)


def with_devices(count: int, flags: str = "") -> Condition:
    """A process that has this many devices, fake ones if the backend is the CPU; `flags` are additional flags of
    XLA."""
    # The flag says the same as the setting in an older way, and JAX takes no two answers.
    usual = _FAKE.sub("", os.environ.get("XLA_FLAGS", ""))
    environ = {"XLA_FLAGS": f"{usual} {flags}".strip()}
    return Condition(f"{count} devices", {"jax_num_cpu_devices": count}, environ)


@on_fresh_stack
def time_calls(call: Callable[[], Any], enough_s: float = READING_S) -> tuple[float, float | None, float | None]:
    """Returns (median, low, high) of a call and the wait for its result, in seconds, for any caller
    (`measuring/fresh_stack.py`).

    Args:
        enough_s: no further reading after this many seconds in calls, except for the least number that gives an
            interval.
    """
    readings: list[float] = []
    while len(readings) < LEAST_READINGS or (len(readings) < MOST_READINGS and sum(readings) < enough_s):
        begun = perf_counter_ns()
        jax.block_until_ready(call())
        readings.append((perf_counter_ns() - begun) / 1e9)
    low, high = median_interval(readings) or (None, None)
    return quantile(sorted(readings), 0.5), low, high


# ---- recordings ---------------------------------------------------------------------------------------------------

PROFILES, LEAST_PROFILES = 7, 3
"""Recordings of one call each, and how many of them have to be whole."""

SPOILS = (
    "no-operations",
    "events-dropped",
    "open-calls",
    "no-programs",
    "no-communication",
    "half-communications",
    "exposed-unknown",
)
"""Remarks on a trace whose shares are not reported."""


class RecordingReading(Protocol):
    """The result of one recording. Readings have an order, and benchax reports the median one."""

    @property
    def operations(self) -> int: ...
    def __lt__(self, other: Any, /) -> bool: ...


R = TypeVar("R", bound=RecordingReading)


def record_readings(
    call: Callable[[], Any], devices: Sequence[Any], read: Callable[[bytes, Sequence[str]], R]
) -> tuple[list[R], str]:
    """(what `read` says of each recording, why it says nothing of the others). Waits for the results of `call`.

    Args:
        read: given a trace, and the names that `devices` have there.
    """
    names = [device_name(device) for device in devices]
    found, why = list[R](), ""
    for _ in range(PROFILES):
        try:
            with session() as recording:
                jax.block_until_ready(call())
            found.append(read(recording.xspace, names))
        except (NotMeasured, NotAvailable, UsageError, FormatError) as error:
            why = error.problem
    return found, why


def middle(found: Sequence[R], why: str) -> R:
    """The middle one of those that are whole.

    Raises:
        NotMeasured: there are too few; `why` the others cannot be read.
    """
    most = max((each.operations for each in found), default=0)
    # Each run has the same operations, so a recording with fewer has lost some.
    whole = sorted(each for each in found if each.operations == most)
    if len(whole) < LEAST_PROFILES:
        raise NotMeasured(why or "the recordings differ in the number of operations")
    return whole[len(whole) // 2]


class Idle(NamedTuple):
    """The idle time in one recording of one run."""

    span_s: float
    """From the first operation on any device to the end of the last."""
    shares: tuple[float, ...]
    """The shares of that time, in the order of the devices, in which no operation was under way."""
    operations: int


def seen_idle(call: Callable[[], Any], devices: Sequence[Any]) -> Facts:
    """How idle devices are during `call`, which is recorded, and waited for, several times."""
    return describe_idle(*record_readings(call, devices, idle_of))


def describe_idle(found: Sequence[Idle], why: str) -> Facts:
    """Describes the recording of median length.

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
    span = int(found.end_ps.max() - found.start_ps.min())
    mine = [found.device == found.devices.index(name) for name in devices]
    shares = tuple(1 - unite(found.start_ps[each], found.end_ps[each]).length / span for each in mine)
    return Idle(span / 1e12, shares, len(found))


class Shares(NamedTuple):
    """The result of one recording of one call. Both are shares of the time in which a device was busy, over all
    devices."""

    communication: float
    exposed: float
    operations: int


def seen_communication(call: Callable[[], Any], devices: Sequence[Any]) -> Facts:
    """Returns the share of `call` that is communication. The function records `call`, and waits for it, several
    times."""
    return describe_shares(*record_readings(call, devices, shares_of))


def describe_shares(found: Sequence[Shares], why: str) -> Facts:
    """Describes the recording with the median share.

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
