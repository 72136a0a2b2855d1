# runs
"""Bootstrap particle filter for stochastic volatility; a grid of parameters is scored in one call."""
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Params(NamedTuple):
    mu: jax.Array
    phi: jax.Array
    sigma: jax.Array


def simulate(seed, n, mu=-1.0, phi=0.95, sigma=0.25):
    rng = np.random.default_rng(seed)
    h, out = mu, np.empty(n, np.float32)
    for t in range(n):
        h = mu + phi * (h - mu) + sigma * rng.normal()
        out[t] = np.exp(h / 2) * rng.normal()
    return jnp.asarray(out)


def systematic(key, weights):
    n = weights.shape[0]
    points = (jnp.arange(n) + jax.random.uniform(key)) / n
    return jnp.clip(jnp.searchsorted(jnp.cumsum(weights), points), 0, n - 1)


def log_likelihood(params, key, y, n_particles):
    k_init, k_steps = jax.random.split(key)
    sd0 = params.sigma / jnp.sqrt(1 - params.phi**2)
    h0 = params.mu + sd0 * jax.random.normal(k_init, (n_particles,))

    def step(h, inputs):
        y_t, k = inputs
        k_move, k_pick = jax.random.split(k)
        h = params.mu + params.phi * (h - params.mu) + params.sigma * jax.random.normal(k_move, h.shape)
        logw = -0.5 * (jnp.log(2 * jnp.pi) + h + y_t**2 * jnp.exp(-h))
        total = jax.nn.logsumexp(logw)
        h = h[systematic(k_pick, jnp.exp(logw - total))]
        return h, total - jnp.log(n_particles)

    _, terms = jax.lax.scan(step, h0, (y, jax.random.split(k_steps, y.shape[0])))
    return terms.sum()


class GridScore:
    """All combinations share the random numbers, so that the surface is smooth."""

    def __init__(self, y, n_particles):
        self.y = y
        score = lambda p, key, y: log_likelihood(p, key, y, n_particles)
        self.score = jax.jit(jax.vmap(score, in_axes=(0, None, None)))

    def __call__(self, grid, key):
        return self.score(grid, key, self.y)


def main(n_obs=200, n_particles=500):
    y = simulate(0, n_obs)
    phi, sigma = np.meshgrid(np.linspace(0.85, 0.99, 6), np.linspace(0.1, 0.5, 5), indexing="ij")
    grid = Params(*(jnp.asarray(a.ravel(), jnp.float32) for a in (np.full_like(phi, -1.0), phi, sigma)))
    scorer = GridScore(y, n_particles)
    for key in jax.random.split(jax.random.key(0), 3):
        ll = np.asarray(scorer(grid, key))
        best = int(ll.argmax())
        print(f"best phi {phi.ravel()[best]:.3f} sigma {sigma.ravel()[best]:.2f} "
              f"log likelihood {ll[best]:.2f}")


if __name__ == "__main__":
    main()
