# runs
# Under vmap the rare refresh in lax.cond runs for every chain at every step.
"""Chains with a mass matrix that is refreshed from a running covariance every 50 steps."""
import argparse
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class ChainState(NamedTuple):
    x: jax.Array
    mean: jax.Array
    cov: jax.Array
    root: jax.Array


def target(dim, key):
    a = jax.random.normal(key, (dim, dim)) / jnp.sqrt(dim)
    return a @ a.T + 0.5 * jnp.eye(dim)


class AdaptiveLangevin:
    def __init__(self, precision, chains, eps=0.5, refresh_every=200):
        self.precision = precision
        self.chains = chains
        self.eps = eps
        self.refresh_every = refresh_every

    def init(self, key):
        d = self.precision.shape[0]
        eye = jnp.broadcast_to(jnp.eye(d), (self.chains, d, d))
        x = jax.random.normal(key, (self.chains, d))
        return ChainState(x, jnp.zeros_like(x), eye, eye)

    def refresh(self, state):
        d = state.x.shape[0]
        jitter = 1e-3 * jnp.eye(d)
        values, vectors = jnp.linalg.eigh(0.5 * (state.cov + state.cov.T) + jitter)
        root = vectors * jnp.sqrt(jnp.maximum(values, 1e-4))
        return state._replace(root=root)

    def transition(self, state, i, key):
        state = lax.cond(i % self.refresh_every == 0, self.refresh, lambda s: s, state)
        grad = self.precision @ state.x
        drift = state.root @ (state.root.T @ grad)
        noise = state.root @ jax.random.normal(key, state.x.shape)
        x = state.x - 0.5 * self.eps**2 * drift + self.eps * noise
        delta = x - state.mean
        rate = 1.0 / (i + 20.0)
        mean = state.mean + rate * delta
        cov = (1.0 - rate) * state.cov + rate * jnp.outer(delta, delta)
        return ChainState(x, mean, cov, state.root)

    def run(self, chains, key, steps):
        def body(chains, inputs):
            i, k = inputs
            keys = jax.random.split(k, self.chains)
            chains = jax.vmap(self.transition, in_axes=(0, 0, 0))(chains, jnp.broadcast_to(i, (self.chains,)), keys)  # expect: vmapped-cond
            return chains, jnp.mean(chains.x**2)

        return lax.scan(body, chains, (jnp.arange(steps), jax.random.split(key, steps)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--chains", type=int, default=64)
    args = parser.parse_args()
    k_target, k_init, k_run = jax.random.split(jax.random.key(0), 3)
    sampler = AdaptiveLangevin(target(24, k_target), args.chains)
    run = jax.jit(sampler.run, static_argnums=2)
    chains, trace = run(sampler.init(k_init), k_run, args.steps)
    exact = jnp.mean(jnp.diag(jnp.linalg.inv(sampler.precision)))
    print(f"mean square {float(trace[args.steps // 2:].mean()):.3f}, exact {float(exact):.3f}")


if __name__ == "__main__":
    main()
