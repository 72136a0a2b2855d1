"""Layouts that a function gives its own arguments, on meshes of four fake devices in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap

import pytest

HEAD = """
import json
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from benchax.auditing.rules.devices import inner_moves
from benchax.watching.signatures import describe_placement

mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
rows, columns, whole = (NamedSharding(mesh, P(*axes)) for axes in (("d",), (None, "d"), ()))
want = jax.lax.with_sharding_constraint
array = jnp.ones((8, 8))
inner = jax.jit(jnp.sin, in_shardings=rows)
parts = jax.shard_map(jnp.sin, mesh=mesh, in_specs=P("d"), out_specs=P("d"))

def moves(f, given, calls=3):
    x = jax.device_put(array, given)
    found = inner_moves(f.trace(x).jaxpr, {(0, x.sharding): calls})
    return [[m.at, n, describe_placement(came), describe_placement(m.sharding)] for m, came, n in found]
"""
FOUND = [0, 3, "P(None, 'd') over {'d': 4}", "P('d',) over {'d': 4}"]


def run(expressions: list[str]) -> list[list[list[object]]]:
    text = textwrap.dedent(HEAD) + f"print(json.dumps([{', '.join(expressions)}]))\n"
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", text], env={**os.environ, **flags}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def answers() -> dict[str, list[list[object]]]:
    return dict(zip(MOVED + STAYING, run(MOVED + STAYING), strict=True))


MOVED = [
    "moves(jax.jit(lambda x: want(x, rows) + 1), columns)",
    "moves(jax.jit(lambda x: jax.value_and_grad(lambda w: (w * want(x, rows)).sum())(1.0)), columns)",
    "moves(jax.jit(lambda x: inner(x) + 1), columns)",
    "moves(jax.jit(lambda x: jax.jit(parts)(x) + 1), columns)",
]
STAYING = [
    "moves(jax.jit(lambda x: parts(x) + 1), rows)",
    "moves(jax.jit(lambda x: parts(x) + x.sum()), columns)",
    "moves(jax.jit(lambda x: want(x, rows) + 1), rows)",
    "moves(jax.jit(lambda x: want(x, rows) + 1), whole)",
    "moves(jax.jit(lambda x: want(x, rows) + 1), jax.devices()[0])",
    "moves(jax.jit(lambda x: want(x, whole) + 1), columns)",
    "moves(jax.jit(lambda x: want(x, rows) + x.sum()), columns)",
    "moves(jax.jit(lambda x: want(jnp.sin(x), rows)), columns)",
    "moves(jax.jit(lambda x: inner(x) + x), columns)",
]


@pytest.mark.slow
@pytest.mark.parametrize("expression", MOVED)
def test_an_argument_that_is_read_in_another_layout_only_is_found(answers, expression: str) -> None:
    assert answers[expression] == [FOUND]


@pytest.mark.parametrize("expression", STAYING)
def test_what_stays_or_is_wanted_as_it_comes_is_not(answers, expression: str) -> None:
    assert answers[expression] == []
