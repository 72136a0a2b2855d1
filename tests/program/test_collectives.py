"""What eight devices say to one another. They are pretended, in one process of their own."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
import warm_python
from compiled_texts import hlo_text

from benchax.program.hlo import parse
from benchax.program.work import collectives
from benchax.results.inspection import Collective

CHILD = """
import json
import jax
jax.config.update("jax_num_cpu_devices", 8)
import jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from benchax.inspecting.inspect import inspect

mesh = jax.make_mesh((4, 2), ("d", "m"), axis_types=(AxisType.Auto,) * 2)
def spread(*spec):
    return jax.ShapeDtypeStruct((512, 512), jnp.float32, sharding=NamedSharding(mesh, P(*spec)))

def by_hand(a):
    def turn(_, c):
        return jax.lax.psum(c, ("d", "m")) * 0.1
    return (
        jax.lax.all_gather(a, "d"),
        jax.lax.ppermute(a, "m", [(0, 1), (1, 0)]),
        jax.lax.psum_scatter(a, "d", scatter_dimension=0, tiled=True),
        jax.lax.fori_loop(0, 5, turn, a),
    )

product = jax.jit(lambda a, b: (a @ b).sum(), out_shardings=NamedSharding(mesh, P()))
specs = P("d", "m")
results = (P(None, "d", "m"), specs, specs, specs)
mapped = jax.shard_map(by_hand, mesh=mesh, in_specs=specs, out_specs=results, check_vma=False)
found = {
    "product": inspect(product, spread("d", "m"), spread("m", None)).asdict()["collectives"],
    "by hand": inspect(mapped, spread("d", "m")).asdict()["collectives"],
}
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    done = warm_python.run([sys.executable, "-c", CHILD], timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_a_sharded_product_reduces_twice_and_says_how_it_is_spread(found: dict[str, Any]) -> None:
    product = found["product"]

    # Over m of 2, then over d of 4; the program writes the two in two forms.
    assert [(c["opcode"], c["size_bytes"], c["trips"], c["group_size"]) for c in product["calls"]] == [
        ("all-reduce", 512 // 4 * 512 * 4, 1, 2),
        ("all-reduce", 4, 1, 4),
    ]
    assert product["partitions"] == 8
    assert dict(product["shardings"]) == {
        "args[0]": "P('d', 'm') over d=4, m=2",
        "args[1]": "P('m', None) over d=4, m=2",
        "result": "P() over d=4, m=2",
    }


def test_every_kind_is_counted_with_its_turns(found: dict[str, Any]) -> None:
    shard = 512 // 4 * 512 // 2 * 4
    calls = {c["opcode"]: (c["size_bytes"], c["group_size"], c["trips"]) for c in found["by hand"]["calls"]}

    assert calls == {
        "all-gather": (4 * shard, 4, 1),
        "all-reduce": (shard, 8, 5),
        "collective-permute": (shard, None, 1),
        "reduce-scatter": (shard // 4, 4, 1),
    }


ASYNC = hlo_text(
    "a = f32[8] parameter(0)",
    "start = (f32[8], f32[32]) all-gather-start(%a), replica_groups={}, dimensions={0}",
    "done = f32[32] all-gather-done(%start)",
    "other = ((f32[8]), f32[32]) async-start(%a), calls=%wrapped",
    "end = f32[32] async-done(%other)",
    wrapped=["inside = f32[32] all-gather(), replica_groups=[1,4]<=[4], dimensions={0}"],
    header="HloModule m, num_partitions=4",
)


def test_an_asynchronous_pair_is_one_communication_of_the_size_of_its_result() -> None:
    found = collectives(parse(ASYNC))

    assert found.calls == (
        Collective("all-gather", "start", 128, "{}", 4, 1),
        Collective("all-gather", "inside", 128, "[1,4]<=[4]", 4, 1),
    )
    assert found.bytes_per_call == 256


def test_in_a_loop_of_unknown_length_the_sum_is_not_known() -> None:
    text = hlo_text(
        "loop = f32[8] while(), condition=%condition, body=%body",
        body=["r = f32[8] all-reduce(), replica_groups={{0,1}}, to_apply=%add"],
        condition=['c = pred[] custom-call(), custom_call_target="ask"'],
        header="HloModule m, num_partitions=2",
    )

    found = collectives(parse(text))

    assert [(c.trips, c.group_size) for c in found.calls] == [(None, 2)]
    assert found.bytes_per_call is None


def test_a_program_of_one_device_says_nothing() -> None:
    found = collectives(parse(hlo_text("a = f32[] parameter(0)")), {"a": "x"})

    assert (found.calls, found.partitions, found.shardings, found.bytes_per_call) == ((), 1, (), 0)
