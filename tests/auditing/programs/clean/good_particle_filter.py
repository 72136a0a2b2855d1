# runs
"""Bootstrap particle filter of a stochastic volatility model, a grid of parameters by vmap."""
import argparse
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.scipy.special import logsumexp
from jax.scipy.stats import norm


class Theta(NamedTuple):
    mu: jax.Array
    phi: jax.Array
    sigma: jax.Array


def simulate(key, theta, length):
    k_h, k_y = jax.random.split(key)

    def body(h, z):
        h = theta.mu + theta.phi * (h - theta.mu) + theta.sigma * z
        return h, h

    _, h = lax.scan(body, jnp.asarray(theta.mu, jnp.float32), jax.random.normal(k_h, (length,)))
    return jnp.exp(0.5 * h) * jax.random.normal(k_y, (length,))


def systematic(key, log_w):
    n = log_w.shape[0]
    cdf = jnp.cumsum(jax.nn.softmax(log_w))
    points = (jax.random.uniform(key) + jnp.arange(n)) / n
    return jnp.clip(jnp.searchsorted(cdf, points), 0, n - 1)


def filter_loglik(theta, key, ys, particles):
    k_init, k_run = jax.random.split(key)
    std = theta.sigma / jnp.sqrt(1.0 - theta.phi**2)
    h0 = theta.mu + std * jax.random.normal(k_init, (particles,))

    def body(h, inputs):
        y, k = inputs
        k_move, k_pick = jax.random.split(k)
        h = theta.mu + theta.phi * (h - theta.mu)
        h = h + theta.sigma * jax.random.normal(k_move, h.shape)
        log_w = norm.logpdf(y, 0.0, jnp.exp(0.5 * h))
        gain = logsumexp(log_w) - jnp.log(particles)
        return h[systematic(k_pick, log_w)], gain

    _, gains = lax.scan(body, h0, (ys, jax.random.split(k_run, ys.shape[0])))
    return jnp.sum(gains)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--particles", type=int, default=256)
    parser.add_argument("--length", type=int, default=150)
    args = parser.parse_args()
    k_sim, k_filter = jax.random.split(jax.random.key(0))
    ys = simulate(k_sim, Theta(-0.5, 0.95, 0.25), args.length)
    phis = jnp.linspace(0.8, 0.99, 12)
    grid = Theta(jnp.full(12, -0.5), phis, jnp.full(12, 0.25))
    run = jax.jit(jax.vmap(filter_loglik, in_axes=(0, 0, None, None)), static_argnums=3)
    totals = jnp.zeros(12)
    for key in jax.random.split(k_filter, 8):
        totals = totals + run(grid, jax.random.split(key, 12), ys, args.particles)
    loglik = jax.device_get(totals / 8)
    for phi, value in zip(jax.device_get(phis), loglik):
        print(f"phi {phi:.3f}: log-likelihood {value:.2f}")


if __name__ == "__main__":
    main()
