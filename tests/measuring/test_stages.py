"""Each stage is measured apart, a look-up is never reported as a compile, and views are not called copies."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.compilation_cache import compilation_cache

from benchax.case import make_case
from benchax.measuring import stages
from benchax.measuring.inputs import make_inputs
from benchax.measuring.program import program_of
from benchax.watching.compiles import watch_compiles


def build(fn, *args, **of_the_case):
    case = make_case(fn, args, **of_the_case)
    entered = []
    built = stages.build(program_of(case), make_inputs(case, 0), entered.append)
    return built, entered


@pytest.fixture
def persistent_cache(tmp_path):
    """JAX's cache on disk, taking everything, for one test."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    before = {name: getattr(jax.config, name) for name in names}
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    compilation_cache.reset_cache()
    yield tmp_path
    for name, value in before.items():
        jax.config.update(name, value)
    compilation_cache.reset_cache()


def test_trace_lower_and_compile_are_entered_and_timed_in_order():
    built, entered = build(lambda x: jnp.sin(x @ x), "f32[8,8]")

    assert entered == ["trace", "lower", "compile"]
    assert list(built.seconds) == entered
    assert all(seconds > 0 for seconds in built.seconds.values())
    assert built.cache == "off"


def test_a_jitted_function_that_was_called_before_is_compiled_from_nothing():
    fn = jax.jit(lambda x: jnp.cos(x) * 3)
    fn(jnp.ones(4))

    with watch_compiles() as log:
        built, _ = build(fn, jnp.ones(4))

    assert log.compiles == 1
    assert built.cache == "off"
    assert built.seconds["compile"] > 0


def test_a_wrapper_that_was_compiled_before_has_no_time_to_compile_but_the_reason():
    equinox = pytest.importorskip("equinox")
    fn, x = equinox.filter_jit(lambda x: x * 7), jnp.ones(4)
    fn(x)
    fn.lower(x).compile()

    built, _ = build(fn, x)

    assert built.cache == "warm"
    assert "compile" not in built.seconds
    (absent,) = [a for a in built.absent if a.what == "stages.compile_s"]
    assert absent.why == "it had been compiled before in this process; a fresh one (--cold-process) shows the cost"


def test_the_persistent_cache_is_told_miss_from_hit(persistent_cache):
    def work(x):
        return jnp.tanh(x) + 11

    first, _ = build(work, "f32[8]")
    second, _ = build(work, "f32[8]")

    assert (first.cache, second.cache) == ("miss", "hit")


def test_a_compiled_function_has_reasons_instead_of_stages():
    built, _ = build(jax.jit(lambda x: x + 1).lower(jnp.ones(3)).compile(), jnp.ones(3))

    assert built.seconds == {}
    assert {a.what for a in built.absent} == {"stages.trace_s", "stages.lower_s", "stages.compile_s"}


@pytest.mark.parametrize("jitted", [True, False])
def test_donation_is_seen(jitted):
    def fn(x):
        return x + 1

    donating = jax.jit(fn, donate_argnums=0) if jitted else fn

    assert build(donating, "f32[8]", donate=() if jitted else [0])[0].donates
    assert not build(fn, "f32[8]")[0].donates


def test_transfer_in_moves_the_bytes_of_all_inputs():
    inputs = make_inputs(make_case(lambda d: d, ({"a": "f32[1000]", "b": "u8[24]", "k": "key"},)), 0)

    transfer = stages.transfer_in(inputs)

    assert transfer.size_bytes == 4024
    assert len(transfer.elapsed_s) == stages.TRANSFERS


def test_transfer_out_of_cpu_outputs_is_a_view_and_has_no_bandwidth():
    transfer = stages.transfer_out(lambda: jnp.arange(1000.0) * 2)

    assert transfer.size_bytes == 4000
    assert transfer.is_zero_copy
    assert transfer.bandwidth_bytes_per_s is None


def test_zero_copy_is_told_by_the_pointers():
    room = np.zeros(4096 + 64, np.uint8)
    start = -room.ctypes.data % 64
    aligned = room[start : start + 4096]
    unaligned = room[start + 8 : start + 8 + 2048]

    assert stages.shares_memory(jax.device_put(aligned), aligned)
    assert not stages.shares_memory(jax.device_put(unaligned), unaligned)


def test_without_arrays_there_is_no_transfer():
    assert stages.transfer_in(make_inputs(make_case(lambda k: k, ("key",)), 0)) is None
    assert stages.transfer_out(lambda: None) is None


def test_dispatch_does_not_wait_for_the_work():
    x = jnp.ones((400, 400))
    chain = jax.jit(lambda x: x @ x @ x @ x @ x @ x)
    chain(x).block_until_ready()

    _, whole_s = stages.first_run(lambda: chain(x))

    assert stages.dispatch(lambda: lambda: chain(x)) < whole_s
