"""Chapter 2: many examples at once."""

from __future__ import annotations

import jax.numpy as jnp
from guide_page import TIME_S, section

import benchax


def example(x):
    return jnp.tanh(x).sum()


@section("2. Vectorization: vmap instead of a loop", example)
def vectorization() -> None:
    """*"Bad: a Python loop. Good: vmap. Best: jit + vmap. Order: jit(vmap(f)), not vmap(jit(f))."*

    `vmap(jit(f))` computes the same, but Python runs `vmap` again in each call. `jit(vmap(f))` runs it once.
    The knee is the batch size from which larger batches hardly give more examples per second.
    """
    given = {"vmap": "x=1,16,256"}
    print(benchax.experiment(example, "f32[1000]", variants=["vmap"], given=given, max_time_s=TIME_S))


def scaled(x, weights):
    return x @ weights


@section("2. Vectorization: in_axes", scaled)
def in_axes() -> None:
    """*"Minimize broadcasting: batch only what differs."*

    `jax.vmap(scaled)(x, weights)` batches both arguments, and fails if `weights` has no batch axis.
    `in_axes=(0, None)` shares it.
    """
    given = {"in_axes": "x=256"}
    print(benchax.experiment(scaled, "f32[64]", "f32[64,64]", variants=["in_axes"], given=given, max_time_s=TIME_S))
