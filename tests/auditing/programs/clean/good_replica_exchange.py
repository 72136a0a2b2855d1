# runs
"""Parallel tempering of a Gaussian mixture in many dimensions, swaps inside the scan."""
import argparse
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.special import logsumexp


class Replicas(NamedTuple):
    x: jax.Array
    logp: jax.Array
    swaps: jax.Array


def make_target(centres):
    norms = jnp.sum(centres**2, axis=1)

    def log_density(x):
        d2 = jnp.sum(x * x) - 2.0 * centres @ x + norms
        return logsumexp(-0.5 * d2)

    return log_density


def move(log_density, replicas, betas, key, scale):
    k_prop, k_acc = jax.random.split(key)
    noise = jax.random.normal(k_prop, replicas.x.shape)
    proposal = replicas.x + scale / jnp.sqrt(betas)[:, None] * noise
    logp = jax.vmap(log_density)(proposal)
    accept = jnp.log(jax.random.uniform(k_acc, logp.shape)) < betas * (logp - replicas.logp)
    x = jnp.where(accept[:, None], proposal, replicas.x)
    return replicas._replace(x=x, logp=jnp.where(accept, logp, replicas.logp))


def swap(replicas, betas, key, offset):
    n = betas.shape[0]
    index = jnp.arange(n)
    partner = jnp.where((index - offset) % 2 == 0, index + 1, index - 1)
    partner = jnp.where((partner < 0) | (partner >= n), index, partner)
    low = jnp.minimum(index, partner)
    u = jax.random.uniform(key, (n,))[low]
    log_ratio = (betas - betas[partner]) * (replicas.logp[partner] - replicas.logp)
    accept = (jnp.log(u) < log_ratio) & (partner != index)
    source = jnp.where(accept, partner, index)
    return Replicas(replicas.x[source], replicas.logp[source], replicas.swaps + accept)


def build(log_density, betas, scale):
    @partial(jax.jit, static_argnames="steps")
    def run(replicas, key, steps):
        def body(r, inputs):
            i, k = inputs
            k_move, k_swap = jax.random.split(k)
            r = move(log_density, r, betas, k_move, scale)
            r = swap(r, betas, k_swap, i % 2)
            return r, r.x[0, :2]

        return lax.scan(body, replicas, (jnp.arange(steps), jax.random.split(key, steps)))

    return run


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--dim", type=int, default=8)
    parser.add_argument("--steps", type=int, default=1500)
    args = parser.parse_args()
    k_centres, k_init, k_warm, k_run = jax.random.split(jax.random.key(0), 4)
    log_density = make_target(4.0 * jax.random.normal(k_centres, (12, args.dim)))
    betas = jnp.geomspace(1.0, 0.02, 16)
    x = jax.random.normal(k_init, (16, args.dim))
    replicas = Replicas(x, jax.vmap(log_density)(x), jnp.zeros(16, jnp.int32))
    run = build(log_density, betas, scale=0.6)
    replicas, _ = run(replicas, k_warm, args.steps)
    replicas = replicas._replace(swaps=jnp.zeros(16, jnp.int32))
    for key in jax.random.split(k_run, 4):
        replicas, trace = run(replicas, key, args.steps)
        print("mean of the cold replica", np.round(np.asarray(trace.mean(axis=0)), 2))
    print("swap rates", np.round(np.asarray(replicas.swaps) / (4 * args.steps), 2))


if __name__ == "__main__":
    main()
