"""The observed peak of resident memory of one call, in this process, in an extra untimed pass. Linux with glibc.

The kernel keeps a high-water mark of resident memory (VmHWM) that can be set back (writing 5 to /proc/self/clear_refs).
On its own that mark misses most arrays below 32 MiB, because glibc serves them from memory that it kept from earlier
frees; so for this pass glibc is told to map every block from 64 KiB up afresh and to give back what it kept. Then the
mark is exact to about 0.2 MiB (benchmarks/memory.py). Mapping is slow (page faults), hence never while something is
timed; afterwards the thresholds are set to 32 and 64 MiB, where glibc's own adaptation ends up in a process that has
freed one big array.

The mark belongs to the whole process: what other threads allocate meanwhile counts. On an accelerator the allocator's
own mark is read around the first call instead; it cannot be set back, so it tells only what exceeded all before it,
as the first call of a fresh process does (unverified: never run on a GPU).

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import ctypes
import gc
import platform
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax

from benchax.errors import NotMeasured
from benchax.units import size

METHOD = "VmHWM"
ACCURACY_BYTES = 512 * 2**10
"""What the method cannot tell from nothing: other threads, and blocks too small to be mapped on their own."""
SETTLING_CALLS = 2
"""With none, 2 of 60 compiled calls were observed as 0; with one, 1 of 60; with two, none."""
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")

# mallopt(3): parameter numbers and, for after the pass, the values that dynamic adaptation converges to.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_DURING = {_MMAP_THRESHOLD: 64 * 2**10, _MMAP_MAX: 2**20, _TRIM_THRESHOLD: 64 * 2**10}
_AFTER = {_MMAP_THRESHOLD: 32 * 2**20, _MMAP_MAX: 65_536, _TRIM_THRESHOLD: 64 * 2**20}


def observed_rise(call: Callable[[], Any]) -> int:
    """Bytes by which resident memory rose, at its highest, above what was there before `call()` (warm, waited for).

    Raises:
        NotMeasured: not Linux with glibc, the mark cannot be set back here, or it rose by less than 512 KiB.
    """
    libc = _glibc()
    try:
        _set(libc, _DURING)
        # malloc_trim does not reach the top of the arenas of other threads; what they kept from earlier calls would
        # serve this one unseen (24 MiB observed as 0). A free under the small trim threshold does.
        for _ in range(SETTLING_CALLS):
            jax.block_until_ready(call())
        gc.collect()
        libc.malloc_trim(0)
        _CLEAR_REFS.write_text("5")
        before = _status_bytes("VmRSS")
        outputs = jax.block_until_ready(call())
        peak = _status_bytes("VmHWM")
        del outputs
    finally:
        _set(libc, _AFTER)
    if peak - before < ACCURACY_BYTES:
        raise NotMeasured(
            f"resident memory rose by less than {size(ACCURACY_BYTES)}, which this method cannot tell from nothing"
        )
    return peak - before


@dataclass(frozen=True)
class DeviceUsage:
    """What an accelerator's allocator says: bytes in use now, and at their highest since the process began."""

    in_use: int
    peak: int


def device_usage(device: Any) -> DeviceUsage:
    """Raises `NotMeasured` where the device's allocator does not say (on CPU it never does)."""
    stats = device.memory_stats() or {}
    if "bytes_in_use" not in stats or "peak_bytes_in_use" not in stats:
        raise NotMeasured(f"the allocator of {device.device_kind} reports no peak")
    return DeviceUsage(stats["bytes_in_use"], stats["peak_bytes_in_use"])


def device_rise(before: DeviceUsage, after: DeviceUsage) -> int:
    """Bytes by which a call rose above what was in use before it.

    Raises:
        NotMeasured: something earlier had reached higher, and the mark cannot be set back.
    """
    if after.peak <= before.peak:
        raise NotMeasured(
            "the allocator's mark was higher before the call and cannot be set back; a fresh process (--cold-process) "
            "has a better chance"
        )
    return after.peak - before.in_use


@lru_cache(maxsize=1)
def _glibc() -> Any:
    if platform.system() != "Linux" or platform.libc_ver()[0] != "glibc":
        raise NotMeasured(
            f"the high-water mark of resident memory needs Linux with glibc; this is {platform.system()} with "
            f"{platform.libc_ver()[0] or 'another C library'}. The compiler's plan stands alone"
        )
    try:
        _CLEAR_REFS.write_text("5")
    except OSError as error:
        raise NotMeasured(
            f"{_CLEAR_REFS} cannot be written ({error.strerror}). The compiler's plan stands alone"
        ) from error
    return ctypes.CDLL("libc.so.6")


def _set(libc: Any, values: dict[int, int]) -> None:
    for parameter, value in values.items():
        libc.mallopt(parameter, value)


def _status_bytes(key: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise NotMeasured(f"{_STATUS} has no {key}")
