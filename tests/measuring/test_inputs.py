"""Specs become seeded data on the device; what is static stays what it is; donated buffers are renewed."""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import warm_python
from hypothesis import given, settings
from hypothesis import strategies as st
from measurement_strategies import measured

import benchax
from benchax import bench, kept_peaks
from benchax.case import benchmark, make_case
from benchax.measuring.inputs import make_inputs, static_arguments, undeclared_static
from benchax.model import Failure, Samples, WorkPerCall
from benchax.results.inspection import Peaks
from benchax.specs import DTYPES

NARROW = sorted(name for name in DTYPES if "64" not in name and "128" not in name)


def inputs_of(*args, seed=0, static=(), **kwargs):
    return make_inputs(make_case(lambda *a, **k: None, args, kwargs, static=static), seed)


@settings(max_examples=40)
@given(st.sampled_from(NARROW), st.lists(st.integers(0, 4), max_size=3))
def test_every_spec_becomes_an_array_of_its_shape_and_dtype(dtype, shape):
    text = f"{dtype}[{','.join(map(str, shape))}]"

    made = inputs_of(text)

    assert made.args[0].shape == tuple(shape)
    assert str(made.args[0].dtype) == DTYPES[dtype]
    assert made.signature == text


def test_data_are_random_and_the_same_for_the_same_seed():
    first, again, other = inputs_of("f32[64]", "f32[64]"), inputs_of("f32[64]"), inputs_of("f32[64]", seed=1)

    assert jnp.array_equal(first.args[0], again.args[0])
    assert not jnp.array_equal(first.args[0], other.args[0])
    assert not jnp.array_equal(*first.args)
    assert len(np.unique(first.args[0])) > 60


def test_specs_of_keys_inside_pytrees_and_of_keyword_arguments_are_made():
    made = inputs_of({"w": "f32[2,3]", "b": ["bf16[3]"]}, "key", "key[4]", x=jax.ShapeDtypeStruct((4,), jnp.int32))

    assert made.signature == "{b: [bf16[3]], w: f32[2,3]}, key, key[4], x=i32[4]"  # JAX sorts the keys
    assert made.args[0]["b"][0].dtype == jnp.bfloat16
    assert [jax.random.key_data(k).shape[:-1] for k in made.args[1:]] == [(), (4,)]


def test_static_arguments_stay_as_they_are_even_if_they_look_like_specs():
    made = inputs_of("f32[2]", "f32[2]", static=[1])

    assert made.args[1] == "f32[2]"
    assert made.signature == "f32[2], 'f32[2]'"


def test_numpy_arrays_are_placed_once_counted_and_narrowed_and_others_stay():
    x = jnp.ones(3)

    made = inputs_of(np.ones((4, 8), np.float32), 1.5, x, "f64[4]", np.arange(3, dtype=np.int64))

    assert isinstance(made.args[0], jax.Array)
    assert (made.args[1], made.args[2] is x) == (1.5, True)
    assert made.numpy_bytes == 4 * 8 * 4 + 3 * 8
    assert made.narrowed == ("float64 to float32", "int64 to int32")


def test_renewed_buffers_are_equal_and_new():
    made = inputs_of({"a": "f32[16]"}, "key", 3)

    (tree, key, number), kwargs = made.renewed()

    assert tree["a"].unsafe_buffer_pointer() != made.args[0]["a"].unsafe_buffer_pointer()
    assert jnp.array_equal(tree["a"], made.args[0]["a"])
    assert (key == made.args[1], number, kwargs) == (True, 3, {})


def test_static_names_and_positions_mean_the_same_argument():
    def fn(x, n, *, mode):
        return x

    by_name = make_case(fn, (1, 2), {"mode": 3}, static=["n", "mode"])
    by_position = make_case(fn, (1,), {"n": 2, "mode": 3}, static=[1])
    negative = make_case(lambda *a: a, (1, 2, 3), static=[-1])

    assert set(static_arguments(by_name, (1, 2), {"mode": 3})) >= {1, "mode"}
    assert "n" in static_arguments(by_position, (1,), {"n": 2, "mode": 3})
    assert static_arguments(negative, (1, 2, 3), {}) == (2,)


@pytest.mark.parametrize(
    ("jitted", "args", "kwargs", "static"),
    [
        (functools.partial(jax.jit, static_argnums=1), (jnp.ones(2), 3), {}, (1,)),
        (functools.partial(jax.jit, static_argnames="n"), (jnp.ones(2), 3), {}, (1,)),
        (functools.partial(jax.jit, static_argnames="n"), (jnp.ones(2),), {"n": 3}, ("n",)),
        (jax.jit, (jnp.ones(2), 3), {}, ()),
    ],
)
def test_static_arguments_of_a_jitted_function_are_found_from_what_jax_publishes(jitted, args, kwargs, static):
    traced = jitted(lambda x, n: x * n).trace(*args, **kwargs)

    assert undeclared_static(traced.args_info, args, kwargs) == static


def test_a_scalar_that_is_dynamic_is_not_taken_for_the_static_one_beside_it():
    fn = jax.jit(lambda x, a, mode: x * a if mode == "fast" else x, static_argnums=2)
    args = (jnp.ones(2), 3.0, "fast")

    assert undeclared_static(fn.trace(*args).args_info, args, {}) == (2,)


# ---- work -------------------------------------------------------------------------------------------------------
#
# Throughput: what one call gets done, and the rates that a row has of it, or the reason why it has none.

SHORT: dict[str, Any] = {
    "timer": "wall", "max_time_s": 0.02, "min_time_s": 0.01, "memory": False, "verify": "off", "store": "off",
}  # fmt: skip


def test_a_rate_is_the_amount_by_the_time_with_the_ends_of_its_interval() -> None:
    m = benchax.bench(jnp.sort, "f32[4096]", work={"samples": 32, "tokens": 4096}, **SHORT)

    s = m.summary()
    samples, tokens = m.rates()
    assert (samples.what, samples.per_s, samples.timer) == ("samples", 32 / s.median_s, "wall")
    assert (tokens.what, tokens.low_per_s, tokens.high_per_s) == ("tokens", 4096 / s.high_s, 4096 / s.low_s)


def test_a_function_of_the_inputs_says_it_for_each_case() -> None:
    made = benchmark(lambda x: x + 1, name="add", args=lambda n: (f"f32[{n},2]",), n=[8, 16],
                     work=lambda x: {"rows": len(x)})  # fmt: skip

    rows = [benchax.api.run([case], call=SHORT) for case in made.cases()]

    assert [row.work.amounts for (row,) in rows] == [{"rows": 8.0}, {"rows": 16.0}]


@pytest.mark.parametrize(
    ("work", "why"),
    [
        (lambda x: {"rows": x.nothing}, "its function raised AttributeError"),
        (lambda x: {"rows": 0}, "its function returned no valid amounts"),
        (lambda x: None, ""),
    ],
)
def test_a_function_that_does_not_say_it_costs_the_rates_and_not_the_row(work: Any, why: str) -> None:
    m = benchax.bench(jnp.sort, "f32[64]", work=work, **SHORT)

    assert m.failure is None
    assert m.summary() is not None
    assert m.rates() == ()
    assert (m.why_absent("work") or "").startswith(why)


def test_without_a_time_there_is_no_rate() -> None:
    m = replace(measured(), work=WorkPerCall({"rows": 3.0}))

    assert [rate.per_s for rate in m.rates()] == [1.5]
    assert replace(m, samples=()).rates() == ()
    assert replace(m, failure=Failure("error", "compile", "no")).rates() == ()
    assert replace(m, samples=(Samples("loop", 1, (1.0, 1.0), overhead_s=2.0),)).rates() == ()
    assert m.rates("loop") == ()


def test_the_rate_of_this_machine_is_beside_bytes_where_it_was_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kept_peaks.platformdirs, "user_cache_dir", lambda _: str(tmp_path))
    before = benchax.bench(jnp.sort, "f32[64]", work={"bytes": 512}, **SHORT)
    found = Peaks(2e10, 2**26, 1e11, 2**18, {"f32": 1e11})
    kept_peaks.keep_peaks(tmp_path / "peaks" / f"{before.environment.fingerprint}.json", found)

    after = benchax.bench(jnp.sort, "f32[64]", work={"bytes": 512}, **SHORT)

    assert (before.work.peak_bytes_per_s, after.work.peak_bytes_per_s) == (None, 1e11)  # 512 bytes are in a cache


# ---- meshes -----------------------------------------------------------------------------------------------------
#
# Specs on a mesh, in a process that pretends to have four devices.


def say(program: str) -> Any:
    """What a program with four devices prints, as JSON."""
    return json.loads(warm_python.run_on_devices(4, program).splitlines()[-1])


PLACING = """
import json, numpy as np, jax
from jax.sharding import Mesh, PartitionSpec
from benchax.case import make_case
from benchax.measuring.inputs import make_inputs
from benchax.measuring.prepare import transfer_in
def shape(text, mesh):
    x, = make_inputs(make_case(lambda x: x, (text,), mesh=mesh), 0).args
    return [str(p) for p in x.sharding.spec], x.addressable_shards[0].data.shape, len(x.sharding.device_set)
own = Mesh(np.array(jax.devices()[2:]), ("rows",))
pair = make_inputs(make_case(lambda x, y: x, ("f32[8@data]", "f32[3]"), mesh="data=4"), 0)
alone = make_inputs(make_case(lambda x, y: x, ("f32[8]", "f32[3]")), 0)
print(json.dumps({
    "two": shape("f32[8@data,6@model]", "data=2,model=2"),
    "one": shape("f32[6,8@data+model]", {"data": 2, "model": 2}),
    "own": [d.id for d in make_inputs(make_case(lambda x: x, ("f32[4@rows]",), mesh=own), 0).args[0].devices()],
    "signature": pair.signature,
    "replicated": pair.args[1].sharding.is_fully_replicated,
    "same data": all((np.asarray(a) == np.asarray(b)).all() for a, b in zip(pair.args, alone.args)),
    "key": make_inputs(make_case(lambda x: x, ("key[4@data]",), mesh="data=4"), 0).signature,
    "copied": transfer_in(pair).size_bytes,
}))
"""


def test_arrays_lie_where_their_specs_say() -> None:
    found = say(PLACING)

    assert found["two"] == [["data", "model"], [4, 3], 4]
    assert found["one"] == [["None", "('data', 'model')"], [6, 2], 4]
    assert sorted(found["own"]) == [2, 3]
    assert found["signature"] == "f32[8@data], f32[3]"
    assert found["replicated"]
    assert found["same data"]
    assert found["key"] == "key[4@data]"
    assert found["copied"] == 44


TIMED = """
import json, jax, numpy as np, benchax
from jax.sharding import Mesh, PartitionSpec as P
from benchax.reporting.exports import FORMATS
from benchax.reporting.exports import entries
def told(m):
    return {
        "timers": [s.timer for s in m.samples], "failure": m.failure and m.failure.message,
        "absent": {a.what: a.why for a in m.not_measured}, "remarks": [r.code for r in m.remarks],
        "devices": [m.devices.count, m.devices.is_fake, m.devices.meshes, len(m.devices.shares)],
        "agrees": m.numerics and m.numerics.agrees, "text": str(m),
        "exports": {name: format(entries([m])) for name, format in FORMATS.items()},
        "communication": [s.communication_s for s in m.devices.shares],
    }
options = {"store": "off", "timer": "in_graph,wall,pipelined,loop,device", "max_time_s": 0.1, "min_time_s": 0.01}
matmul = benchax.bench(
    lambda a, b: a @ b, "f32[512,512@data]", "f32[512@data,512]", name="matmul", mesh="data=4", memory=False, **options
)
mesh = Mesh(np.array(jax.devices()), ("d",))
mapped = jax.jit(jax.shard_map(
    lambda x: jax.lax.psum(x @ x, "d"), mesh=mesh, in_specs=P(), out_specs=P(), check_vma=False
))
# Its inputs lie on one device: only the program says that it runs on four.
told_mapped = told(benchax.bench(mapped, "f32[64,64]", name="mapped", memory=False, **options))
print(json.dumps({"matmul": told(matmul), "mapped": told_mapped}))
"""


@pytest.fixture(scope="module")
def timed() -> Any:
    return say(TIMED)


TIMERS = {"in_graph", "wall", "pipelined", "loop", "device"}


@pytest.mark.slow
@pytest.mark.parametrize("function", ["matmul", "mapped"])
def test_each_timer_has_a_number_of_a_program_on_several_devices_or_a_reason(timed: Any, function: str) -> None:
    found = timed[function]

    assert found["failure"] is None
    reasons = {what.removeprefix("samples.") for what in found["absent"] if what.startswith("samples.")}
    assert set(found["timers"]) | reasons >= TIMERS
    assert {"wall", "pipelined"} <= set(found["timers"])
    assert found["agrees"]


@pytest.mark.slow
def test_the_clock_beside_one_device_is_not_asked_about_four(timed: Any) -> None:
    assert timed["matmul"]["absent"]["samples.in_graph"] == (
        "its inputs are sharded over devices, and reading the clock would gather them"
    )
    assert timed["mapped"]["absent"]["samples.in_graph"] == (
        "it runs on 4 devices, and a reading of the clock belongs to one device"
    )


@pytest.mark.slow
def test_fake_devices_are_marked_in_the_row_its_text_and_every_export(timed: Any) -> None:
    found = timed["matmul"]

    assert found["devices"] == [4, True, ["data=4"], 4]
    assert "fake-devices" in found["remarks"]
    assert found["text"].count("4 fake devices") >= 3  # beside the machine, in its section, in the remark
    unmarked = [name for name, text in found["exports"].items() if "4 fake devices" not in text]
    assert unmarked == ["csv"]  # which has columns for it
    assert "4,true" in found["exports"]["csv"]


@pytest.mark.slow
def test_communication_is_told_of_each_device(timed: Any) -> None:
    assert all(seconds and seconds > 0 for seconds in timed["matmul"]["communication"])
    assert "in collectives, waiting included" in timed["matmul"]["text"]


@pytest.mark.parametrize(
    ("spec", "mesh"),
    [
        ("f32[8@data]", None),
        ("f32[8]", "data=1"),
        ("f32[8@rows]", "data=1,x=1"),
        ("f32[7@data]", "data=2"),
        ("f32[8@data,8@data]", "data=2"),
        ("f32[8@data]", "data=8"),
    ],
)
def test_what_cannot_lie_on_the_mesh_is_the_failure_of_the_row(spec: str, mesh: Any, snapshot: Any) -> None:
    row = bench(lambda *xs: xs[0], spec, mesh=mesh, name="f", store="off", stages="build")

    assert row.failure is not None
    assert (row.failure.message.partition(" (at ")[0], row.failure.advice) == snapshot
