"""The observed rise is that of the arrays that a call really makes; where it cannot be told, a reason."""

from __future__ import annotations

import itertools
import platform
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import benchax
from benchax.errors import NotMeasured
from benchax.measuring import memory
from benchax.measuring.memory import device_usage, is_one_figure, observed_device_range, observed_range
from benchax.reporting.measurement import document
from benchax.reporting.terminal import to_text

needs_glibc = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the high-water mark of resident memory needs Linux with glibc"
)
MIB = 2**20


def linux(test: Any) -> Any:
    """Also serial: what it observes is disturbed by a neighbour."""
    return pytest.mark.serial(needs_glibc(test))


def within(measured, truth):
    return abs(measured - truth) <= max(MIB / 2, 0.03 * truth)


@linux
@pytest.mark.parametrize("mib", [1, 4, 24, 80])
def test_outputs_of_a_compiled_call_are_seen(mib):
    x = jnp.ones(mib * MIB // 4)
    fn = jax.jit(lambda x: x + 1)
    fn(x).block_until_ready()

    assert within(observed_range(lambda: fn(x))[1], mib * MIB)


@linux
def test_temporaries_of_a_compiled_call_are_seen():
    x = jnp.ones((1024, 1024)) * 0.01
    fn = jax.jit(lambda a: ((a @ a) @ (a @ a + 1)) @ a)
    fn(x).block_until_ready()
    plan = fn.lower(x).compile().memory_analysis()

    planned = plan.temp_size_in_bytes + plan.output_size_in_bytes
    rise = observed_range(lambda: fn(x))[1]

    # The matmul kernels of jax 0.6 take a workspace of their own, which no plan mentions.
    assert planned - MIB / 2 <= rise <= 1.5 * planned


@linux
def test_arrays_alive_together_in_an_eager_call_are_seen():
    x = jnp.ones(2 * MIB)

    def eager():
        kept = [(x + i).block_until_ready() for i in range(3)]
        return (kept[0] + kept[1]).block_until_ready()

    eager()

    assert within(observed_range(eager)[1], 4 * 8 * MIB)


@linux
def test_a_call_that_takes_nothing_is_a_reason_not_a_zero():
    x = jnp.ones(8)

    with pytest.raises(NotMeasured, match=r"rose by less than 512 KiB, too little for this method to see"):
        observed_range(lambda: x)


@linux
def test_a_call_that_compiles_each_time_is_a_reason():
    """An eager fori_loop over a new lambda compiles in every call, and that memory is not its own."""
    x = jnp.ones(MIB)

    with pytest.raises(NotMeasured, match=r"each call compiles \(1 program this time\)"):
        observed_range(lambda: jax.lax.fori_loop(0, 3, lambda i, y: y + 1, x))


@pytest.mark.parametrize(
    ("of", "name", "value", "why"),
    [
        (memory, "_CLEAR_REFS", Path("/missing/clear_refs"), "cannot be written|needs Linux with glibc"),
        (
            platform,
            "system",
            lambda: "Darwin",
            "needs Linux with glibc; this is Darwin .* Only the compiler's plan is known",
        ),
    ],
    ids=["a mark that cannot be set back", "another system"],
)
def test_where_nothing_can_be_observed_the_reason_is_given(of, name, value, why, monkeypatch):
    monkeypatch.setattr(of, name, value)
    memory._glibc.cache_clear()

    with pytest.raises(NotMeasured, match=why):
        observed_range(lambda: None)

    memory._glibc.cache_clear()


@linux
def test_an_eager_call_whose_memory_differs_from_call_to_call_is_a_range_that_holds_most_of_them() -> None:
    """Each operation makes 8 MiB; Python runs ahead of the device, or does not."""
    x, alive = jnp.ones(2 * MIB), itertools.cycle([1, 3])

    def eager() -> Any:
        return [(x + i).block_until_ready() for i in range(next(alive))]

    eager(), eager()
    least, most = observed_range(eager, longest_s=60)
    same, as_well = observed_range(lambda: (x + 1).block_until_ready(), longest_s=60)

    assert within(least, 8 * MIB)
    assert within(most, 24 * MIB)
    assert not is_one_figure(least, most)
    assert is_one_figure(same, as_well)


@linux
def test_the_row_says_both_ends(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    optax = pytest.importorskip("optax")
    monkeypatch.setattr(memory, "observed_range", lambda *_: (40 * MIB, 60 * MIB))

    m = bench(optax.huber_loss, jnp.ones(1024), jnp.zeros(1024), options={"memory": True, "timer": "wall"}, jit=False)

    assert (m.memory.eager_rise_low_bytes, m.memory.eager_rise_bytes) == (40 * MIB, 60 * MIB)
    text = " ".join(to_text(document(m)).split())
    assert "+40.0 MiB" in text
    assert "to +60.0 MiB, observed in several calls" in text


# ---- an accelerator's memory, on a stand-in for its allocator ------------------------------------------------------


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
