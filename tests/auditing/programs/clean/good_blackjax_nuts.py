# runs
# needs: blackjax
"""NUTS with blackjax: window adaptation, then chains by vmap and scan."""
import argparse

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.scipy.stats import norm


class LogisticModel:
    def __init__(self, x, y):
        self.x, self.y = x, y

    def logdensity(self, position):
        logits = self.x @ position["w"] + position["b"]
        loglik = jnp.sum(self.y * logits - jax.nn.softplus(logits))
        return loglik + jnp.sum(norm.logpdf(position["w"])) + norm.logpdf(position["b"])

    def init(self):
        return {"w": jnp.zeros(self.x.shape[1]), "b": jnp.zeros(())}


def simulate(n, d, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d)).astype(np.float32)
    w = rng.normal(size=d).astype(np.float32)
    y = (rng.uniform(size=n) < 1.0 / (1.0 + np.exp(-(x @ w - 0.3)))).astype(np.float32)
    return jax.device_put(x), jax.device_put(y), w


def make_runner(kernel, draws):
    def one_chain(key, state):
        def body(s, k):
            s, info = kernel.step(k, s)
            return s, (s.position, info.acceptance_rate)

        _, out = lax.scan(body, state, jax.random.split(key, draws))
        return out

    return jax.jit(jax.vmap(one_chain))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--draws", type=int, default=300)
    args = parser.parse_args()
    x, y, w = simulate(200, 5, seed=0)
    model = LogisticModel(x, y)
    k_warm, k_run = jax.random.split(jax.random.key(0))
    warmup = blackjax.window_adaptation(blackjax.nuts, model.logdensity)
    (state, parameters), _ = warmup.run(k_warm, model.init(), num_steps=300)
    kernel = blackjax.nuts(model.logdensity, **parameters)
    states = jax.tree.map(lambda a: jnp.broadcast_to(a, (args.chains, *a.shape)), state)
    run = make_runner(kernel, args.draws)
    positions, rates = run(jax.random.split(k_run, args.chains), states)
    mean, rates = jax.device_get((positions["w"].mean(axis=(0, 1)), rates))
    print("posterior mean", np.round(mean, 2), "truth", np.round(w, 2))
    print(f"acceptance {rates.mean():.3f}")


if __name__ == "__main__":
    main()
