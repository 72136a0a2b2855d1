# runs
# needs: blackjax
"""Banana-shaped posterior: four NUTS chains side by side after window adaptation (blackjax)."""
import argparse

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy import stats


class Banana:
    """Nonlinear regression y ~ N(a + b^2 x, 1) with normal priors."""

    def __init__(self, seed, n):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=n)
        self.x = jnp.asarray(x, jnp.float32)
        self.y = jnp.asarray(0.5 + 0.6 * x + rng.normal(size=n), jnp.float32)

    def __call__(self, p):
        mean = p["a"] + p["b"] ** 2 * self.x
        prior = stats.norm.logpdf(p["a"]) + stats.norm.logpdf(p["b"], 0.7, 0.3)
        return prior + stats.norm.logpdf(self.y, mean, 1.0).sum()


def sample_chains(target, key, n_chains, n_warm, n_keep):
    warm = blackjax.window_adaptation(blackjax.nuts, target)
    k_warm, k_start, k_run = jax.random.split(key, 3)

    @jax.jit
    def run(k_warm, k_start, k_run):
        origin = {"a": jnp.zeros(()), "b": jnp.full((), 0.7)}
        (state, params), _ = warm.run(k_warm, origin, n_warm)
        kernel = blackjax.nuts(target, **params)

        def one_chain(k_start, k_run):
            noise = 0.1 * jax.random.normal(k_start, (2,))
            pos = {"a": state.position["a"] + noise[0], "b": state.position["b"] + noise[1]}

            def body(s, k):
                s, info = kernel.step(k, s)
                return s, (s.position, info.is_divergent)

            return jax.lax.scan(body, kernel.init(pos), jax.random.split(k_run, n_keep))[1]

        return jax.vmap(one_chain)(jax.random.split(k_start, n_chains),
                                   jax.random.split(k_run, n_chains))

    return run(k_warm, k_start, k_run)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--chains", type=int, default=4)
    ap.add_argument("--warm", type=int, default=300)
    ap.add_argument("--keep", type=int, default=500)
    args = ap.parse_args()
    target = Banana(0, 400)
    draws, divergent = sample_chains(target, jax.random.key(0), args.chains, args.warm, args.keep)
    for name, d in jax.device_get(draws).items():
        within = d.var(1).mean()
        rhat = np.sqrt(1 + d.mean(1).var(ddof=1) / within)
        print(f"{name}: {d.mean():.3f} +- {d.std():.3f}, R-hat {rhat:.3f}")
    print(f"divergences: {int(divergent.sum())}")


if __name__ == "__main__":
    main()
