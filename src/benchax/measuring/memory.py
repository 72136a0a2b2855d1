"""The observed peak of resident memory of one call, in this process, in an extra untimed pass. Linux with glibc.

The kernel keeps a high-water mark of resident memory (VmHWM) that can be set back (writing 5 to /proc/self/clear_refs).
On its own, that mark misses most arrays below 32 MiB, because glibc serves them from memory that it kept from earlier
frees. So for this pass, glibc has to map every block from 64 KiB up afresh and to give back its kept memory. Then the
mark is exact to about 0.2 MiB (benchmarks/memory.py). Mapping is slow (page faults), so it never happens during timing.
Afterwards the thresholds are set to 32 and 64 MiB. glibc's own adaptation reaches these values in a process that has
freed one big array.

The mark belongs to the whole process: allocations by other threads at the same time count. `device_memory.py` observes
the memory of accelerators.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import ctypes
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax

from benchax.errors import NotMeasured
from benchax.machine.noise import paused_gc
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
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")

# mallopt(3): parameter numbers and, for after the pass, the values that dynamic adaptation converges to.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
_DURING = {_MMAP_THRESHOLD: 64 * 2**10, _MMAP_MAX: 2**20, _TRIM_THRESHOLD: 64 * 2**10}
# To set any of them switches glibc's own adaptation off for the rest of the process, so its usual end is set by hand.
_AFTER = {_MMAP_THRESHOLD: 32 * 2**20, _MMAP_MAX: 65_536, _TRIM_THRESHOLD: 64 * 2**20}


def observed_rise(call: Callable[[], Any]) -> int:
    """Bytes by which resident memory rose, at its highest, above what was there before `call()` (warm, waited for).

    Raises:
        NotMeasured: not Linux with glibc, the mark cannot be set back here, or it rose by less than
            512 KiB, or the call compiles.
    """
    with mapping_every_block():
        # malloc_trim does not reach the top of the arenas of other threads; what they kept from earlier calls would
        # serve this one unseen (24 MiB observed as 0). A free under the small trim threshold does.
        call_without_compiling(call)
        # A reading errs downwards, where something else is freed during the call: the greater of two.
        return believed(max((read_rise(call) for _ in range(CALLS - 1)), key=lambda rise: rise.rise_bytes))


def observed_range(
    call: Callable[[], Any], longest_s: float, most_readings: int = MOST_EAGER_READINGS
) -> tuple[int, int]:
    """(least, most) of the readings of a call whose memory differs from one to the next, as `observed_rise`.

    Args:
        call: once that is not read, and up to `most_readings` times that are.
        longest_s: of a call that is worth more than two readings.

    Raises:
        NotMeasured: as `observed_rise`.
    """
    with mapping_every_block():
        call_without_compiling(call)
        return read_range(call, longest_s, most_readings)


def read_range(
    call: Callable[[], Any], longest_s: float, most_readings: int, first: Rise | None = None
) -> tuple[int, int]:
    """(least, most), inside `mapping_every_block`, where a call has been before; `first` has been read already."""
    rises = [first or read_rise(call)]
    most = most_readings if rises[0].elapsed_s < longest_s else CALLS - 1
    while len(rises) < most and not (len(rises) >= AGREEING and is_one_figure(*_ends(rises))):
        rises.append(read_rise(call))
    _refuse_compiling(max(rise.compiles for rise in rises))
    return max(_ends(rises)[0], 0), believed(max(rises, key=lambda rise: rise.rise_bytes))


def _ends(rises: Sequence[Rise]) -> tuple[int, int]:
    values = [rise.rise_bytes for rise in rises]
    return min(values), max(values)


def is_one_figure(least: int, most: int) -> bool:
    """Within 3 %, or as near as the method can tell?"""
    return most - least <= max(SAME_SHARE * most, ACCURACY_BYTES)


@dataclass(frozen=True)
class Rise:
    """How far one call rose. `elapsed_s` is longer than that of other calls: every block is mapped."""

    rise_bytes: int
    elapsed_s: float
    compiles: int


def read_rise(call: Callable[[], Any]) -> Rise:
    """One reading, inside `mapping_every_block`, where a call has been before."""
    before = _settled(_glibc())
    # Only now: the mark falls to what is resident at this moment, which before the wait held what was still to be
    # freed.
    _CLEAR_REFS.write_text("5")
    start = time.perf_counter_ns()
    with watch_compiles() as log:
        outputs = jax.block_until_ready(call())
    elapsed_s = (time.perf_counter_ns() - start) / 1e9
    peak = _status_bytes("VmHWM")
    del outputs
    return Rise(peak - before, elapsed_s, log.compiles)


def believed(rise: Rise) -> int:
    """The bytes.

    Raises:
        NotMeasured: the call compiled, or this is less than the method can see.
    """
    _refuse_compiling(rise.compiles)
    if rise.rise_bytes < ACCURACY_BYTES:
        raise NotMeasured(
            f"resident memory rose by less than {size(ACCURACY_BYTES)}, which this method cannot tell from nothing"
        )
    return rise.rise_bytes


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


def _settled(libc: Any) -> int:
    """Resident bytes once they no longer change: XLA's threads release a call's buffers after its outputs are ready.

    Without this wait 80 MiB were observed as 11: the baseline still held what was then freed during the call.
    """
    readings: list[int] = []
    while len(readings) < SETTLED_READINGS or (
        len(readings) < MOST_READINGS and len(set(readings[-SETTLED_READINGS:])) > 1
    ):
        time.sleep(0.001)
        libc.malloc_trim(0)
        readings.append(_status_bytes("VmRSS"))
    return readings[-1]


def call_without_compiling(call: Callable[[], Any]) -> None:
    """Raises `NotMeasured` for a call that compiles though it is warm."""
    with watch_compiles() as log:
        jax.block_until_ready(call())
    _refuse_compiling(log.compiles)


def _refuse_compiling(compiles: int) -> None:
    """As eager loops over lambdas do in every call."""
    if compiles:
        raise NotMeasured(
            f"each call compiles ({plural(compiles, 'program')} this time), and the memory of the "
            "compiler cannot be told from its own"
        )


@contextmanager
def mapping_every_block() -> Iterator[None]:
    """While it lasts, glibc maps every block from 64 KiB up afresh.

    Raises:
        NotMeasured: not Linux with glibc, or the mark cannot be set back here.
    """
    libc = _glibc()
    try:
        _set(libc, _DURING)
        with paused_gc():
            yield
    finally:
        _set(libc, _AFTER)


def _set(libc: Any, values: dict[int, int]) -> None:
    for parameter, value in values.items():
        libc.mallopt(parameter, value)


def _status_bytes(key: str) -> int:
    for line in _STATUS.read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise NotMeasured(f"{_STATUS} has no {key}")
