"""Observes the peak of one call in an accelerator's memory: the amount by which it lifts the allocator's mark.

The mark (`peak_bytes_in_use`) cannot be set back, and compiling has mostly lifted it above what any call needs: XLA
tries its kernels on its own buffers. So an array first fills the memory between the memory in use and the mark. Then a
call lifts the mark by exactly the memory that it takes.

The mark counts the blocks of the allocator. They are up to twice as large as requested if no other block is free (16.02
MiB of temporaries were 32 MiB in a process that takes memory as it needs it). So a reading is too large or right, and
the least reading counts. Tried on an NVIDIA H100 with jax 0.11.2: `docs/verified/`.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from benchax.errors import NotMeasured
from benchax.measuring.memory import call_without_compiling
from benchax.units import size

METHOD = "memory_stats"


@dataclass(frozen=True)
class DeviceUsage:
    """The state of an accelerator's allocator: bytes in use now, and at their highest since the process began."""

    in_use: int
    peak: int


def device_usage(device: Any) -> DeviceUsage:
    """Raises `NotMeasured` if the device's allocator does not say (on CPU it never does)."""
    stats = device.memory_stats() or {}
    if "bytes_in_use" not in stats or "peak_bytes_in_use" not in stats:
        raise NotMeasured(f"the allocator of {device.device_kind} reports no peak")
    return DeviceUsage(stats["bytes_in_use"], stats["peak_bytes_in_use"])


def observed_range(call: Callable[[], Any], device: Any, readings: int) -> tuple[int, int]:
    """(least, most) bytes by which memory in use rose, at its highest, above what was there before `call()`.

    Args:
        call: once that is not read, and `readings` times that are.
        device: whose memory it is.

    Raises:
        NotMeasured: the allocator does not say, what lies below its mark cannot be filled, the call compiles, or takes
            less than could not be filled.
    """
    call_without_compiling(call)
    rises = [_read_rise(call, device) for _ in range(readings)]
    return min(rises), max(rises)


def _read_rise(call: Callable[[], Any], device: Any) -> int:
    filler = _fill_below_mark(device)
    before = device_usage(device)
    outputs = jax.block_until_ready(call())
    rise = device_rise(before, device_usage(device))
    del outputs, filler
    return rise


def _fill_below_mark(device: Any) -> Any:
    usage = device_usage(device)
    try:
        with jax.default_device(device):
            return jax.block_until_ready(jnp.zeros(usage.peak - usage.in_use, jnp.uint8))
    except Exception as error:
        # JaxRuntimeError of its own kind in each version. Harmless: what could not be read is said.
        raise NotMeasured(
            f"the allocator's mark is {size(usage.peak - usage.in_use)} above what is in use, and that cannot be "
            f"filled ({type(error).__name__})"
        ) from error


def device_rise(before: DeviceUsage, after: DeviceUsage) -> int:
    """Bytes by which a call rose above what was in use before it.

    Raises:
        NotMeasured: it stayed below the mark that was there.
    """
    if after.peak <= before.peak:
        raise NotMeasured(
            f"it took no more than the {size(before.peak - before.in_use)} by which the allocator's mark was higher"
        )
    return after.peak - before.in_use
