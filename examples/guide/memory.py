"""Chapter 3: what is kept, what is given away, and when it is needed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from guide_page import TIME_S, inputs_of, section

import benchax
from benchax import workloads


def deep(weights, x):
    for w in weights:
        x = jnp.tanh(x @ w)
    return jnp.mean(x**2)


@section("3. Memory: rematerialization", deep)
def rematerialization() -> None:
    """*"With remat: 2-5x less memory, ~30 % slower."*

    With `jax.checkpoint`, JAX keeps less between the two passes. The compiler decides what that does to memory. Read
    the column *peak*, which is the compiler's plan.
    """
    weights = [jax.random.normal(key, (256, 256)) / 16 for key in jax.random.split(jax.random.key(0), 12)]
    print(benchax.experiment(deep, weights, "f32[512,256]", variants=["remat"], max_time_s=TIME_S))


def shifted(x):
    return x + 1


@section("3. Memory: donation", shifted)
def donation() -> None:
    """*"Reuse buffers: donate_argnums."*

    The output uses the donated memory. This works on CPU, too, and needs no private part of JAX.
    """
    print(benchax.experiment(shifted, "f32[4096,4096]", variants=["donate"], max_time_s=TIME_S))


@section("3. Memory: what is needed, and when")
def memory() -> None:
    """*"Profile memory usage."*

    The compiler's plan is available before anything runs. benchax also observes how much resident memory a call really
    adds.
    """
    print(benchax.bench(workloads.train_step, *inputs_of(workloads.train_step), max_time_s=1.0))


@jax.jit
def next_state(state):
    return state * 0.999


@section("3. Memory: over time", next_state)
def over_time() -> None:
    """*"Find memory leaks."*

    An array stays alive as long as anything holds it, such as this list. Readings during a recording show the rise. The
    list of remaining arrays contains the new ones.
    """
    state, history = next_state(jnp.ones((1024, 1024))), []
    with benchax.profile(memory_s=0.002) as recorded:
        for _ in range(100):
            state = next_state(state)
            history.append(state)
    print(recorded)
