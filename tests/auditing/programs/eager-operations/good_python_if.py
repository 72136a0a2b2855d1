# runs
# A loop over keys, in which each of 1600 steps is one call of a jitted function: few operations are between them.
"""Random-walk Metropolis for the frailty parameters of a survival model."""
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Survival(NamedTuple):
    x: jax.Array       # covariates
    time: jax.Array    # observed or censoring time
    event: jax.Array   # 1 where the event was seen


def make_data(seed, n=300, d=4):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    rate = np.exp(-0.5 + x @ np.linspace(-0.6, 0.8, d))
    t = rng.weibull(1.4, n) / rate
    c = rng.exponential(3.0, n)
    pack = lambda a: jnp.asarray(a, jnp.float32)
    return Survival(pack(x), pack(np.minimum(t, c)), pack(t <= c))


@jax.jit
def log_posterior(theta, data):
    """Weibull regression; theta = (log shape, intercept, coefficients)."""
    shape = jnp.exp(theta[0])
    log_rate = theta[1] + data.x @ theta[2:]
    log_h = jnp.log(shape) + shape * log_rate + (shape - 1.0) * jnp.log(data.time)
    cum = (data.time * jnp.exp(log_rate)) ** shape
    return jnp.sum(data.event * log_h - cum) - 0.5 * jnp.sum(theta**2) / 4.0


@jax.jit
def propose(key, theta, lp, chol, data):
    """A candidate, its log density, and whether it is to be taken."""
    k_step, k_accept = jax.random.split(key)
    cand = theta + chol @ jax.random.normal(k_step, theta.shape)
    cand_lp = log_posterior(cand, data)
    return cand, cand_lp, jnp.log(jax.random.uniform(k_accept)) < cand_lp - lp


class Chain:
    def __init__(self, data, dim, scale, thin=20):
        self.data = data
        self.thin = thin
        self.chol = scale * jnp.eye(dim)

    def run(self, keys, theta):
        lp = log_posterior(theta, self.data)
        thetas, n_accept = [], 0
        for i, key in enumerate(keys):
            cand, cand_lp, take = propose(key, theta, lp, self.chol, self.data)
            if take:
                theta, lp = cand, cand_lp
                n_accept += 1
            if i % self.thin == 0:
                thetas.append(theta)
        return jnp.stack(thetas), n_accept / len(keys)

    def adapt(self, trace):
        """Proposal covariance from the trace so far (Haario et al.)."""
        dim = trace.shape[1]
        cov = jnp.cov(trace.T) + 1e-6 * jnp.eye(dim)
        self.chol = jnp.linalg.cholesky(cov) * 2.38 / math.sqrt(dim)


def main(n_warm=400, n_keep=1200):
    data = make_data(0)
    dim = data.x.shape[1] + 2
    chain = Chain(data, dim, scale=0.05)
    keys = jax.random.split(jax.random.key(2), n_warm + n_keep)
    warm, rate = chain.run(keys[:n_warm], jnp.zeros(dim))
    print(f"warm-up acceptance {rate:.2f}")
    chain.adapt(warm[len(warm) // 2:])
    trace, rate = chain.run(keys[n_warm:], warm[-1])
    print(f"acceptance {rate:.2f}")
    print("mean:", np.round(np.asarray(trace.mean(0)), 3))
    print("sd:  ", np.round(np.asarray(trace.std(0)), 3))


if __name__ == "__main__":
    main()
