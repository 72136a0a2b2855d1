"""The observed peak of resident memory of one call, in this process, in an extra untimed pass. Linux with glibc.

The kernel keeps a high-water mark of resident memory (VmHWM) that can be set back (writing 5 to /proc/self/clear_refs).
On its own, that mark misses most arrays below 32 MiB, because glibc serves them from memory that it kept from earlier
frees. So for this pass, glibc has to map every block from 64 KiB up afresh and to give back its kept memory. Then the
mark is exact to about 0.2 MiB (benchmarks/memory.py). Mapping is slow (page faults), so it never happens during timing.
Afterwards the thresholds are set to 32 and 64 MiB. glibc's own adaptation reaches these values in a process that has
freed one big array.

The mark belongs to the whole process: allocations by other threads at the same time count. Accelerators have another
method (`observed_device_range`).

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

from benchax.errors import NotMeasured
from benchax.machine.noise import paused_gc, timed
from benchax.measuring.record import Record
from benchax.measuring.timers.base import Subject
from benchax.model import Absent, Options
from benchax.units import plural, size
from benchax.watching.compiles import watch_compiles

METHOD = "VmHWM"
ACCURACY_BYTES = 512 * 2**10
"""The method's uncertainty: other threads, and blocks too small to be mapped on their own."""
CALLS = 3
"""One that is not read, and two that are."""
AGREEING, MOST_EAGER_READINGS = 3, 10
"""Readings of an eager call. No two of them are alike: how far Python runs ahead decides how many arrays exist at once.
The first number is enough if they agree."""
SAME_SHARE = 0.03
"""Readings that are not farther apart are one figure."""
SETTLED_READINGS, MOST_READINGS = 5, 50
"""Resident memory counts as settled after the first number of equal readings, 1 ms apart. The second number is the most
readings to wait for.
"""
_STATUS, _STATM = Path("/proc/self/status"), Path("/proc/self/statm")
_CLEAR_REFS = Path("/proc/self/clear_refs")

# From mallopt(3): parameter numbers, and the values to restore afterwards, which are those that dynamic adaptation
# converges to.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_DURING = {_MMAP_THRESHOLD: 64 * 2**10, _MMAP_MAX: 2**20, _TRIM_THRESHOLD: 64 * 2**10}
# Setting any of them disables glibc's own adaptation for the rest of the process. So set its usual final value by hand.
_AFTER = {_MMAP_THRESHOLD: 32 * 2**20, _MMAP_MAX: 65_536, _TRIM_THRESHOLD: 64 * 2**20}


def observed_range(
    call: Callable[[], Any], longest_s: float = 0.0, most_readings: int = MOST_EAGER_READINGS
) -> tuple[int, int]:
    """(least, most) bytes by which resident memory rose, at its highest, above what was there before `call()` (warm,
    waited for). A reading errs downwards, if something else is freed during the call.

    Args:
        call: once that is not read, and up to `most_readings` times that are.
        longest_s: of a call that is worth more than two readings.

    Raises:
        NotMeasured: not Linux with glibc, the mark cannot be set back here, or it rose by less than
            512 KiB, or the call compiles.
    """
    rises: list[int] = []
    with _mapping_every_block() as libc:
        # malloc_trim does not reach the top of the arenas of other threads. Memory that they kept from earlier calls
        # would serve this one unseen (24 MiB observed as 0). A free under the small trim threshold reaches it.
        _call(call)
        while len(rises) < most_readings and not (len(rises) >= AGREEING and is_one_figure(min(rises), max(rises))):
            before = _settled(libc)
            # Reset only now: the mark falls to the memory that is resident at this moment. Before the wait, that
            # included memory that was still to be freed.
            _CLEAR_REFS.write_text("5")
            outputs, elapsed_s = _call(call)
            rises.append(_high_water_mark() - before)
            del outputs
            if elapsed_s >= longest_s:
                most_readings = CALLS - 1
    if max(rises) < ACCURACY_BYTES:
        raise NotMeasured(
            f"resident memory rose by less than {size(ACCURACY_BYTES)}, too little for this method to see"
        )
    return max(min(rises), 0), max(rises)


def is_one_figure(least: int, most: int) -> bool:
    """Within 3 %, or as near as the method can tell?"""
    return most - least <= max(SAME_SHARE * most, ACCURACY_BYTES)


def _call(call: Callable[[], Any]) -> tuple[Any, float]:
    """(outputs, seconds) of one call.

    Raises:
        NotMeasured: it compiles, as eager loops over lambdas do in every call.
    """
    with watch_compiles() as log:
        outputs, elapsed_s = timed(lambda: jax.block_until_ready(call()))
    if log.compiles:
        raise NotMeasured(
            f"each call compiles ({plural(log.compiles, 'program')} this time), and the compiler's memory "
            "hides the memory of the call"
        )
    return outputs, elapsed_s


@lru_cache(maxsize=1)
def _glibc() -> Any:
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        raise NotMeasured(
            f"the high-water mark of resident memory needs Linux with glibc; this is {platform.system()} with "
            f"{platform.libc_ver()[0] or 'another C library'}. Only the compiler's plan is known"
        )
    try:
        _CLEAR_REFS.write_text("5")
    except OSError as error:
        raise NotMeasured(
            f"{_CLEAR_REFS} cannot be written ({error.strerror}). Only the compiler's plan is known"
        ) from error
    return ctypes.CDLL("libc.so.6")


def _settled(libc: Any) -> int:
    """Resident bytes once they no longer change: XLA's threads release a call's buffers after its outputs are ready.

    Without this wait 80 MiB were observed as 11: the baseline still held what was then freed during the call.
    """
    readings: list[int] = []
    while len(readings) < SETTLED_READINGS or (
        len(readings) < MOST_READINGS and len(set(readings[-SETTLED_READINGS:])) > 1
    ):
        time.sleep(0.001)
        # It takes longer than everything else, and finds nothing if nothing was freed since the last time.
        if len(readings) < 2 or readings[-1] != readings[-2]:
            libc.malloc_trim(0)
        readings.append(int(_STATM.read_text().split()[1]) * mmap.PAGESIZE)
    return readings[-1]


@contextmanager
def _mapping_every_block() -> Iterator[Any]:
    """While it lasts, glibc, which it gives, maps every block from 64 KiB up afresh.

    Raises:
        NotMeasured: not Linux with glibc, or the mark cannot be set back here.
    """
    libc = _glibc()
    try:
        for parameter, value in _DURING.items():
            libc.mallopt(parameter, value)
        with paused_gc():
            yield libc
    finally:
        for parameter, value in _AFTER.items():
            libc.mallopt(parameter, value)


def _high_water_mark() -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


# ---- device memory ---------------------------------------------------------------------------------------------------
#
# Observes the peak of one call in an accelerator's memory: the amount by which it lifts the allocator's mark.
#
# The mark (`peak_bytes_in_use`) cannot be set back, and compiling has mostly lifted it above what any call needs: XLA
# tries its kernels on its own buffers. So an array first fills the memory between the memory in use and the mark. Then
# a call lifts the mark by exactly the memory that it takes.
#
# The mark counts the blocks of the allocator. They are up to twice as large as requested if no other block is free
# (16.02 MiB of temporaries were 32 MiB in a process that takes memory as it needs it). So a reading is too large or
# right, and the least reading counts. Tried on an NVIDIA H100 with jax 0.11.2: `docs/verified/`.


DEVICE_METHOD = "memory_stats"


def device_usage(device: Any) -> tuple[int, int]:
    """Bytes in use of an accelerator's memory now, and at their highest since the process began. Raises `NotMeasured`
    if the device's allocator does not say (on CPU it never does)."""
    stats = device.memory_stats() or {}
    if "bytes_in_use" not in stats or "peak_bytes_in_use" not in stats:
        raise NotMeasured(f"the allocator of {device.device_kind} reports no peak")
    return stats["bytes_in_use"], stats["peak_bytes_in_use"]


def observed_device_range(call: Callable[[], Any], device: Any, readings: int) -> tuple[int, int]:
    """(least, most) bytes by which memory in use rose, at its highest, above what was there before `call()`.

    Args:
        call: once that is not read, and `readings` times that are.
        device: whose memory it is.

    Raises:
        NotMeasured: the allocator does not say, what lies below its mark cannot be filled, the call compiles, or takes
            less than could not be filled.
    """
    _call(call)
    rises = [_read_device_rise(call, device) for _ in range(readings)]
    return min(rises), max(rises)


def _read_device_rise(call: Callable[[], Any], device: Any) -> int:
    in_use, mark = device_usage(device)
    try:
        with jax.default_device(device):
            filler = jax.block_until_ready(jnp.zeros(mark - in_use, jnp.uint8))
    except Exception as error:
        # Each version raises another kind of JaxRuntimeError. Harmless: the row says that it could not be read.
        raise NotMeasured(
            f"the allocator's mark is {size(mark - in_use)} above what is in use, and that cannot be "
            f"filled ({type(error).__name__})"
        ) from error
    in_use, mark = device_usage(device)
    outputs = jax.block_until_ready(call())
    _, peak = device_usage(device)
    del outputs, filler
    if peak <= mark:
        raise NotMeasured(f"it took no more than the {size(mark - in_use)} by which the allocator's mark was higher")
    return peak - in_use


# ---- memory rises ----------------------------------------------------------------------------------------------------
#
# Observes how far the calls of a case raise memory: when, and for which calls.
#
# It takes separate passes: for resident memory on CPU (`observed_range`), for the device's memory on an accelerator
# (`observed_device_range`). A part that cannot be observed gives the reason, and the rest goes on.


QUICK_CALL_S = 0.3
"""A quicker eager call is read more often where the first readings differ; a longer one as seldom as can be."""


def observe_memory(record: Record, subject: Subject, options: Options) -> None:
    """Observes the rises of both calls, in separate passes."""
    if not options.memory:
        record.absent += [
            Absent(f"memory.{name}", "switched off", is_by_choice=True)
            for name in ("compiled_rise_bytes", "eager_rise_bytes")
        ]
        return
    record.enter("memory")
    program, method = subject.program, METHOD if jax.default_backend() == "cpu" else DEVICE_METHOD
    if program.kind != "eager":
        with record.recording_absence("memory.compiled_rise_bytes"):
            record.memory = replace(record.memory, method=method, compiled_rise_bytes=observed_bytes(subject))
        # Without an earlier run, memory for compiling the operations would count as memory of the call.
        if record.numerics is None and not record.notes.undecided:
            record.absent.append(Absent("memory.eager_rise_bytes", record.why("numerics")))
            return
    with record.recording_absence("memory.eager_rise_bytes"):
        # If each call has its own buffers, all of them wait in memory.
        readings = CALLS - 1 if subject.needs_renewal else MOST_EAGER_READINGS
        least, most = _observe(subject, program.eager or program.call, QUICK_CALL_S, readings, AGREEING)
        low = None if is_one_figure(least, most) else least
        record.memory = replace(record.memory, method=method, eager_rise_bytes=most, eager_rise_low_bytes=low)


def observed_bytes(subject: Subject) -> int:
    """How far a call of the program rises. Raises `NotMeasured` if this cannot be observed."""
    least, most = _observe(subject, subject.program.call, 0.0, CALLS - 1, CALLS - 1)
    return most if jax.default_backend() == "cpu" else least


def _observe(
    subject: Subject, fn: Callable[..., Any], longest_s: float, most_readings: int, device_readings: int
) -> tuple[int, int]:
    """(least, most): see `observed_range`, and `observed_device_range` on an accelerator."""
    is_cpu = jax.default_backend() == "cpu"
    # Buffers for all calls are made beforehand, or they would count as memory of the call. Each set serves one call:
    # one call too many is a bug, and raises.
    calls = iter([subject.ready(fn) for _ in range(1 + (most_readings if is_cpu else device_readings))])
    if is_cpu:
        return observed_range(lambda: next(calls)(), longest_s, most_readings)
    return observed_device_range(lambda: next(calls)(), _device_of(subject), device_readings)


def _device_of(subject: Subject) -> Any:
    """One of the devices that it runs on, which are alike."""
    used = [device for leaf in subject.inputs.data for device in leaf.sharding.device_set]
    return min(used, key=lambda device: device.id, default=jax.devices()[0])
