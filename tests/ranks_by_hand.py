"""Functions that one rank of several does otherwise than the others; imported in the ranks."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

DELAY_S = 5e-3


def _is_second(value: Any) -> bool:
    return jax.process_index() == 1


def _wait(value: Any) -> Any:
    if _is_second(value):
        time.sleep(DELAY_S)
    return value


def sums(x: Any) -> Any:
    return jnp.sum(x)


def late(x: Any) -> Any:
    """The second process sleeps in each call, on each of its devices, before the sum is exchanged."""

    def each(part: Any) -> Any:
        waited = jax.pure_callback(_wait, jax.ShapeDtypeStruct((), np.float32), part.sum())
        return jax.lax.psum(part.sum(), "data"), part + waited

    mesh = Mesh(np.array(jax.devices()), ("data",))
    specs = PartitionSpec(), PartitionSpec("data")
    return jax.shard_map(each, mesh=mesh, in_specs=PartitionSpec("data"), out_specs=specs, check_vma=False)(x)


def dies(x: Any) -> Any:
    if _is_second(x):
        os.kill(os.getpid(), signal.SIGKILL)
    return jnp.sum(x)


def hangs(x: Any) -> Any:
    while _is_second(x):
        signal.pause()
    return jnp.sum(x)


def raises(x: Any) -> Any:
    if _is_second(x):
        raise ValueError("no such thing")
    return jnp.sum(x)


def exchanges_more(x: Any) -> Any:
    return jnp.sum(x) if _is_second(x) else jnp.sum(x) + jnp.max(x)


def differs(x: Any) -> Any:
    """No collective: each process has a result of its own."""
    return x + jax.process_index()
