"""The rise of an accelerator's memory by one call, on a stand-in for its allocator, and on a GPU where there is one."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import jax
import pytest

import benchax
from benchax.errors import NotMeasured
from benchax.measuring import memory
from benchax.measuring.memory import device_usage, observed_device_range

MIB = 2**20


class Block:
    """Memory of the stand-in, until nothing refers to it."""

    def __init__(self, device: Device, size: int) -> None:
        self.device, self.size = device, size
        device.in_use += size
        device.peak = max(device.peak, device.in_use)

    def __del__(self) -> None:
        self.device.in_use -= self.size


class Device:
    """64 MiB in use, and a mark at 1 GiB, where compiling left it."""

    device_kind = "stand-in"
    in_use, peak, rounding = 64 * MIB, 1024 * MIB, 0

    def memory_stats(self) -> dict[str, int]:
        return {"bytes_in_use": self.in_use, "peak_bytes_in_use": self.peak}

    def zeros(self, size: int, dtype: Any) -> Block:
        return Block(self, size - self.rounding)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device()
    monkeypatch.setattr(jax, "default_device", lambda device: nullcontext())
    monkeypatch.setattr(memory, "jnp", SimpleNamespace(zeros=made.zeros, uint8="u8"))
    return made


def test_a_call_below_an_old_mark_is_seen_and_what_lay_below_the_mark_is_given_back(device: Device) -> None:
    sizes = iter([48, 32, 40, 36])  # the first is not read

    assert observed_device_range(lambda: Block(device, next(sizes) * MIB), device, 3) == (32 * MIB, 40 * MIB)
    assert device.in_use == 64 * MIB


def test_what_cannot_be_filled_counts_as_not_seen(device: Device) -> None:
    device.rounding = 8 * MIB

    assert observed_device_range(lambda: Block(device, 9 * MIB), device, 1) == (9 * MIB, 9 * MIB)
    with pytest.raises(NotMeasured, match=r"no more than the 8\.00 MiB by which the allocator's mark was higher"):
        observed_device_range(lambda: Block(device, 7 * MIB), device, 1)


def test_memory_in_pieces_is_a_reason(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(size: int, dtype: Any) -> Any:
        raise RuntimeError("RESOURCE_EXHAUSTED: out of memory")

    monkeypatch.setattr(memory.jnp, "zeros", refuse)

    with pytest.raises(NotMeasured, match=r"mark is 960 MiB above what is in use, and that cannot be filled"):
        observed_device_range(lambda: None, device, 1)


def test_an_allocator_that_reports_no_peak_is_a_reason() -> None:
    silent: Any = SimpleNamespace(device_kind="fake", memory_stats=lambda: None)

    assert device_usage(Device()) == (64 * MIB, 1024 * MIB)
    with pytest.raises(NotMeasured, match="the allocator of fake reports no peak"):
        device_usage(silent)


@pytest.mark.gpu
def test_on_a_gpu_both_calls_rise_by_their_arrays_though_compiling_reached_higher() -> None:
    m = benchax.bench(
        lambda x: (x @ x).sum() + (x @ x.T), "f32[2048,2048]", stages="first_run", memory=True, store="off"
    )

    assert m.memory.method == "memory_stats", m.absent
    planned = m.memory.output_bytes + m.memory.temp_bytes
    assert planned <= m.memory.compiled_rise_bytes <= 2 * planned  # blocks are up to twice as large
    assert m.memory.eager_rise_bytes >= 32 * MIB
