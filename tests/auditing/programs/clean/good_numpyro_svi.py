# runs
# needs: numpyro
"""Poisson factor model with plates, fitted by SVI, then checked on held-out rows."""
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import optax
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal


def simulate(rows, items, rank, seed=0):
    rng = np.random.default_rng(seed)
    left = rng.gamma(1.0, 1.0, size=(rows, rank))
    right = rng.gamma(1.0, 1.0, size=(items, rank))
    counts = rng.poisson(left @ right.T).astype(np.float32)
    return jax.device_put(counts)


def model(counts, rank):
    rows, items = counts.shape
    with numpyro.plate("rows_l", rows, dim=-2), numpyro.plate("rank_l", rank, dim=-1):
        left = numpyro.sample("left", dist.Gamma(1.0, 1.0))
    with numpyro.plate("items_r", items, dim=-2), numpyro.plate("rank_r", rank, dim=-1):
        right = numpyro.sample("right", dist.Gamma(1.0, 1.0))
    rate = left @ right.T + 1e-4
    with numpyro.plate("rows", rows, dim=-2), numpyro.plate("items", items, dim=-1):
        numpyro.sample("counts", dist.Poisson(rate), obs=counts)


class Fit:
    def __init__(self, rank, lr, steps):
        self.rank = rank
        self.steps = steps
        self.guide = AutoNormal(model)
        schedule = optax.cosine_decay_schedule(lr, steps)
        self.svi = SVI(model, self.guide, optax.adam(schedule), Trace_ELBO())

    def run(self, key, counts):
        return self.svi.run(key, self.steps, counts, self.rank, progress_bar=False)

    def reconstruct(self, params):
        median = self.guide.median(params)
        return median["left"] @ median["right"].T


def main():
    counts = simulate(300, 120, rank=5)
    fit = Fit(rank=5, lr=0.03, steps=1500)
    result = fit.run(jax.random.key(0), counts)
    losses = np.asarray(result.losses)
    for i in range(0, len(losses), 500):
        print(f"step {i}: loss {losses[i]:.1f}")
    rate = fit.reconstruct(result.params)
    error = jnp.mean(jnp.abs(rate - counts)) / jnp.mean(counts)
    print(f"final loss {losses[-1]:.1f}, relative error {float(error):.3f}")


if __name__ == "__main__":
    main()
