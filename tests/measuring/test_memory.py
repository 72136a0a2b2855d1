"""The observed rise is that of the arrays that a call really makes; where it cannot be told, a reason."""

import itertools
import platform
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchax.errors import NotMeasured
from benchax.measuring import memory
from benchax.measuring.memory import is_one_figure, observed_range
from benchax.reporting.measurement import document
from benchax.reporting.terminal import to_text

optax = pytest.importorskip("optax")
pytestmark = pytest.mark.serial  # what they observe is disturbed by a neighbour

linux = pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc", reason="the high-water mark of resident memory needs Linux with glibc"
)
MIB = 2**20


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

    with pytest.raises(NotMeasured, match=r"rose by less than 512 KiB, which this method cannot tell from nothing"):
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
    monkeypatch.setattr(memory, "observed_range", lambda *_: (40 * MIB, 60 * MIB))

    m = bench(optax.huber_loss, jnp.ones(1024), jnp.zeros(1024), options={"memory": True, "timer": "wall"}, jit=False)

    assert (m.memory.eager_rise_low_bytes, m.memory.eager_rise_bytes) == (40 * MIB, 60 * MIB)
    text = " ".join(to_text(document(m)).split())
    assert "+40.0 MiB" in text
    assert "to +60.0 MiB, observed in several calls" in text
