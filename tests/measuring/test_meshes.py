"""Specs on a mesh, in a process that pretends to have four devices."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import pytest
import warm_python

from benchax import bench

ENVIRON = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=4"}


def say(program: str) -> Any:
    """What a program with four devices prints, as JSON."""
    out = warm_python.run([sys.executable, "-c", program], env=ENVIRON)
    assert out.returncode == 0, out.stderr[-2000:]
    return json.loads(out.stdout.splitlines()[-1])


PLACING = """
import json, numpy as np, jax
from jax.sharding import Mesh, PartitionSpec
from benchax.case import make_case
from benchax.measuring.inputs import make_inputs
from benchax.measuring.stages import transfer_in
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
from benchax.reporting.exports.entries import entries
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
        "it runs on 4 devices, and each reading would be of the clock beside one of them"
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


def failure_of(*inputs: str, mesh: Any = None) -> str:
    row = bench(lambda *xs: xs[0], *inputs, mesh=mesh, name="f", store="off", stages="build")
    assert row.failure is not None
    return row.failure.message.partition(" (at ")[0]


@pytest.mark.parametrize(
    ("spec", "mesh", "message"),
    [
        (
            "f32[8@data]",
            None,
            "'f32[8@data]' is sharded over data, and there is no mesh; expected --mesh data=4, or mesh='data=4'",
        ),
        (
            "f32[8]",
            "data=1",
            "no input of 'f[mesh=data=1]' names an axis of the mesh data=1; expected a spec such as f32[1024@data,512]",
        ),
        (
            "f32[8@rows]",
            "data=1,x=1",
            "'f32[8@rows]' names the axis 'rows', which the mesh data=1,x=1 does not have; expected one of: data, x",
        ),
        (
            "f32[7@data]",
            "data=2",
            "7 in 'f32[7@data]' does not divide among the 2 devices of data in the mesh data=2; expected a multiple of 2",  # noqa: E501
        ),
        (
            "f32[8@data,8@data]",
            "data=2",
            "'f32[8@data,8@data]' names the axis 'data' twice; expected each axis at one dimension at most",
        ),
        (
            "f32[8@data]",
            "data=8",
            "the mesh data=8 takes 8 devices, and there is 1 device; expected axes whose product is at most 1",
        ),
    ],
)
def test_what_cannot_lie_on_the_mesh_is_the_failure_of_the_row(spec: str, mesh: Any, message: str) -> None:
    assert failure_of(spec, mesh=mesh) == message


def test_a_mesh_of_too_many_devices_says_how_a_cpu_gets_them() -> None:
    row = bench(lambda x: x, "f32[8@data]", mesh="data=8", store="off", stages="build")

    assert row.failure is not None
    assert row.failure.advice == "on a CPU JAX can pretend to have more: JAX_NUM_CPU_DEVICES=8"
