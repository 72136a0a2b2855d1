"""The clock of NVIDIA GPUs, without one: what is lowered for CUDA, and the logic around it with the clock of the CPU.

The stand-in makes XLA:CPU know the kernels' call: the handler of a stamp writes a time behind the arrays that it passes
through, as the kernel does. What only a GPU shows is in `benchmarks/verify_gpu.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from clock.test_deadline import ENDLESS, GENEROUS_S, LONG, SOON, endless, halve
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import benchax
from benchax.clock import cuda, handlers, times, with_deadline
from benchax.clock.handlers import Tier, nanoseconds
from benchax.errors import DeadlineExceeded, NotAvailable

X = jnp.ones((8, 8))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are made for the clock of a GPU."""
    monkeypatch.setattr(handlers, "find_tier", lambda platform: Tier("cuda"))


@pytest.fixture(scope="module")
def kernels() -> None:
    tier = handlers.tier()
    handler = handlers.LOADERS[tier.name](handlers._api_minor())("benchax_stamp")
    jax.ffi.register_ffi_target(cuda.TARGET, jax.ffi.pycapsule(handler), platform="cpu")


@pytest.fixture
def stand_in(gpu: None, kernels: None) -> None:
    """And run on the CPU."""


def lowered(f: Callable[..., Any], *args: Any) -> str:
    return jax.jit(f).trace(*args).lower(lowering_platforms=("cuda",)).as_text()


def stamped(x: Any) -> Any:
    x, start = benchax.clock.stamp({"x": x, "key": jax.random.key(0)})
    y, end = benchax.clock.stamp(x["x"] @ x["x"])
    return y, benchax.clock.elapsed_s(start, end)


PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "stamp": stamped,
    "stamps in nested loops": lambda x: lax.fori_loop(0, 9, lambda _, x: lax.scan(one_stamp, x, None, 3)[0], x),
    "tie": lambda x: benchax.clock.tie(jnp.sin)(benchax.clock.stamp(x)[1], x),
    "spin": lambda x: handlers.spin(Tier("cuda"), x, 20_000),
    "deadline": lambda x: with_deadline(endless, 0.5, "partial")(x),
    "deadline of nested loops": lambda x: with_deadline(ENDLESS["in a loop"], 0.5, "partial")(x[0, 0]),
    "grid": lambda x: benchax.compiled_grid([jnp.sin, ENDLESS["scan"]], repeats=5)(x, timeout_s=0.1).timings,
}


def one_stamp(x: Any, _: Any) -> Any:
    return benchax.clock.stamp(x)[0], None


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_form_lowers_for_cuda_without_a_gpu(name: str, gpu: None) -> None:
    text = lowered(PROGRAMS[name], X)

    kernel = "benchax_spin" if name == "spin" else "benchax_stamp"
    assert "@__gpu$xla.gpu.triton" in text
    assert f"tt.func public @{kernel}(" in text
    assert "mov.u64 $0, %globaltimer;" in text
    assert ("benchax_tick" in text) == (name in ("deadline", "deadline of nested loops", "grid"))
    assert "benchax_stamp_" not in text, "no handler of the CPU"


@pytest.mark.parametrize("name", ["stamp", "spin", "deadline"])
def test_the_kernels_are_valid_triton(name: str, gpu: None) -> None:
    """As far as jaxlib knows the dialect."""
    dialect = pytest.importorskip("jaxlib.triton.dialect")
    ir = pytest.importorskip("jaxlib.mlir.ir")
    texts = set(re.findall(r'ir = "([^"]*)"', lowered(PROGRAMS[name], X)))

    with ir.Context() as context, ir.Location.unknown():
        dialect.register_dialect(context)
        context.load_all_available_dialects()
        for text in texts:
            written = re.sub(r"\\([0-9A-F]{2})", lambda code: chr(int(code[1], 16)), text)
            assert ir.Module.parse(written).operation.verify()
    assert texts


def test_work_waits_for_a_stamp_and_values_pass_through_it(stand_in: None) -> None:
    y, seconds = jax.jit(stamped)(X)

    np.testing.assert_array_equal(y, X @ X)
    assert 0 <= seconds < GENEROUS_S


@pytest.mark.parametrize("name", ENDLESS)
def test_an_endless_loop_stops(name: str, stand_in: None) -> None:
    outputs, is_expired = with_deadline(ENDLESS[name], SOON, "partial")(1.0)

    assert bool(is_expired)
    assert np.isfinite(np.asarray(outputs)).all()


@pytest.mark.parametrize("length", [1_000, 4_099])
@pytest.mark.parametrize("reverse", [False, True])
def test_blocks_of_trips_compute_what_the_scan_does(length: int, reverse: bool, stand_in: None) -> None:
    def rows(x: Any) -> Any:
        return lax.scan(lambda x, i: (halve(x) + i, x * i), x, jnp.arange(float(length)), reverse=reverse)

    expected = jax.jit(rows)(1.0)
    found, is_expired = with_deadline(rows, LONG, "partial")(1.0)

    assert not is_expired
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_the_host_raises_where_the_program_cannot(stand_in: None) -> None:
    with pytest.raises(DeadlineExceeded, match="endless ran past its limit of 30"):
        with_deadline(endless, SOON)(1.0)
    assert with_deadline(halve, LONG)(1.0) == 1.5
    with pytest.raises(NotAvailable, match=r"cannot raise inside a jit(.|\n)*on_timeout='partial'"):
        jax.jit(with_deadline(endless, SOON))(1.0)


def test_a_compiled_grid_times_and_stops(stand_in: None) -> None:
    grid = benchax.compiled_grid({"sin": jnp.sin, "endless": endless}, repeats=20)

    found = grid(jnp.ones(1000), timeout_s=[GENEROUS_S, SOON])

    assert found.clock == "cuda"
    assert list(found.status_names) == ["ok", "timed_out"]
    assert (np.asarray(found.timings)[0] > 0).all()
    assert np.isnan(np.asarray(found.timings)[1]).all()


def test_in_graph_says_which_clock_it_read_how_fine_it_is_and_what_reading_costs(stand_in: None) -> None:
    row = benchax.bench(lambda x: jnp.tanh(x @ x), jnp.ones((64, 64)), timer="in_graph", max_time_s=0.2)

    (samples,) = row.samples
    assert samples.clock_tier == "cuda"
    assert samples.resolution_s is not None
    assert samples.overhead_s is not None
    assert samples.census is not None
    assert samples.regime == "CUDA graphs on"
    assert samples.summary.median_s > 0


def test_a_gpu_without_cuda_and_other_devices_have_no_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotAvailable, match="none is made for tpu yet"):
        handlers.find_tier("tpu")
    with pytest.raises(NotAvailable, match=r"JAX runs this GPU by '.*', not by CUDA"):
        handlers.find_tier("gpu")


# ---- times -----------------------------------------------------------------------------------------------------------


TIMES = st.integers(0, 2**63 - 1)


def words(ns: int) -> Any:
    return jnp.asarray([ns & 0xFFFFFFFF, ns >> 32], jnp.uint32)


def joined(time: Any) -> int:
    low, high = np.asarray(time).tolist()
    return low | high << 32


@given(TIMES, TIMES)
def test_times_are_added_subtracted_and_compared_like_integers(a: int, b: int) -> None:
    late, early = max(a, b), min(a, b)

    assert joined(times.plus(words(a), words(b))) == a + b
    assert joined(times.minus(words(late), words(early))) == late - early
    assert bool(times.is_before(words(a), words(b))) == (a < b)


@given(st.floats(-10.0, 2.0**40, width=32))
def test_seconds_are_nanoseconds_as_exactly_as_a_float_says(seconds: float) -> None:
    expected = min(max(seconds, 0.0), 2.0**31) * 1e9

    assert joined(times.from_seconds(jnp.float32(seconds))) == pytest.approx(expected, rel=2e-7, abs=2)


@given(st.integers(1, 2**28), st.integers(0, 10**10))
def test_strips_come_near_the_time_that_a_look_is_worth(strip: int, elapsed_ns: int) -> None:
    shortest, short, long, wanted = cuda.LOOK_NS
    begin = 2**33 + 5
    now = begin + elapsed_ns

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "stamp", lambda *_: ([], words(now)))
        (low, high, following), is_expired = cuda.tick(
            words(now + 1), jnp.stack([*words(begin), jnp.uint32(strip)]), jnp.ones(1)
        )

    factor = 8 if elapsed_ns < shortest else 2 if elapsed_ns < short else 1
    expected = strip * (wanted / min(elapsed_ns, 2**32) if elapsed_ns > long else factor)
    assert not is_expired
    assert nanoseconds(jnp.stack([low, high])) == now
    assert int(following) == pytest.approx(min(max(expected, 1), 2**28), rel=1e-5, abs=2)
