"""Arguments on one device, beside others that lie on several."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from jax_versions import shows_calls

PROGRAM = """
import json, jax, jax.numpy as jnp, numpy as np
from jax.sharding import NamedSharding, PartitionSpec as P
from benchax.auditing.call_counter import CallCounter

mesh = jax.make_mesh((4,), ("d",))
rows, whole = NamedSharding(mesh, P("d")), NamedSharding(mesh, P())
state = jax.device_put(np.ones((64, 512), np.float32), rows)
table, small, spread = jnp.ones((64, 512)), jnp.ones(8), jax.device_put(jnp.ones((64, 512)), whole)
counter = CallCounter(60.0)


def moved(call):
    counter.notes.lines.clear()
    call()
    return [[*what, n] for line in counter.notes.lines.values() for what, n in line.moved.items()]


def run(step, *args):
    x = state
    for _ in range(4):
        x = step(x, *(make() for make in args))


step = jax.jit(lambda state, table: state + table.sum())
asked = jax.jit(lambda state, table: state + table.sum(), in_shardings=(rows, whole))
print(json.dumps([
    moved(lambda: run(step, lambda: table)),
    moved(lambda: run(step, lambda: small)),
    moved(lambda: run(step, lambda: spread)),
    moved(lambda: run(step, lambda: jnp.ones((64, 512)))),
    moved(lambda: run(asked, lambda: table)),
]))
counter.close()
"""


@shows_calls
def test_what_is_kept_on_one_device_and_copied_in_each_call_is_noted() -> None:
    flags = {"XLA_FLAGS": "--xla_force_host_platform_device_count=4", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env={**os.environ, **flags}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kept, small, spread, new, asked = json.loads(done.stdout)

    # Of the first call nothing is known to stay.
    ((name, lies, to, n),) = kept
    assert (name, to, n) == ("table", "the 4 devices of state", 3)
    assert lies.lower().startswith("cpu")
    assert small == spread == new == []
    assert [one[2] for one in asked] == ["P() over {'d': 4}"]
