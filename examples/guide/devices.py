"""Chapter 5: several devices."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from guide_page import TIME_S, section

import benchax
from guide.memory import deep


def gradient(weights, x):
    return jax.grad(deep)(weights, x)


@section("5. Several devices: sharding", deep, gradient)
def sharding() -> None:
    """*"JAX inserts all-gather and reduce-scatter automatically. Profile communication overhead."*

    The compiled program shows which collectives XLA inserts, and how many bytes they move. If the batch is sharded over
    the devices, the gradients have to be summed.
    """
    weights = ["f32[256,256]"] * 4
    print(benchax.experiment(gradient, weights, "f32[512,256]", variants=["devices"], max_time_s=TIME_S))


def first(x):
    return jnp.tanh(x @ jnp.full((256, 256), 0.01))


def second(x):
    return jnp.tanh(x @ jnp.full((256, 256), 0.02))


@section("5. Several devices: pipelining", first, second)
def pipelining() -> None:
    """*"Pipeline parallelism for very large models."*

    Micro-batches keep the stages busy at the same time. Devices of a CPU are fake. benchax first tries whether they
    slow one another down, and shows times only if they don't.
    """
    print(benchax.experiments.pipeline([first, second], "f32[512,256]", micro_batches=(1, 2, 4, 8)))
