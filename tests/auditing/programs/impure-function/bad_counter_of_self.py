# runs
# The step counter on self is incremented inside the jitted method: it runs once, at trace time, so the learning rate stays at that of the first warm-up step.
"""Train a small linen network with a hand-written warm-up and decay of the learning rate."""
import argparse
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax


class Net(nn.Module):
    features: tuple = (64, 64)

    @nn.compact
    def __call__(self, x):
        for f in self.features:
            x = nn.tanh(nn.Dense(f)(x))
        return nn.Dense(1)(x)[..., 0]


class WarmupTrainer:
    """Momentum SGD; the rate rises for `warmup` steps and then decays as 1/sqrt(step)."""

    def __init__(self, model, peak, warmup):
        self.model = model
        self.peak = peak
        self.warmup = warmup
        self.count = 0
        self.trace = optax.trace(decay=0.9, nesterov=True)

    def init(self, key, x):
        params = self.model.init(key, x)
        return params, self.trace.init(params)

    def rate(self, count):
        count = jnp.asarray(count, jnp.float32)
        return self.peak * jnp.minimum(count / self.warmup, jnp.sqrt(self.warmup / count))

    def loss(self, params, x, y):
        return jnp.mean((self.model.apply(params, x) - y) ** 2)

    @partial(jax.jit, static_argnums=0)
    def step(self, params, opt_state, x, y):
        self.count += 1  # expect: impure-function
        loss, grads = jax.value_and_grad(self.loss)(params, x, y)
        direction, opt_state = self.trace.update(grads, opt_state, params)
        lr = self.rate(self.count)
        params = jax.tree.map(lambda p, d: p - lr * d, params, direction)
        return params, opt_state, loss

    @partial(jax.jit, static_argnums=0)
    def evaluate(self, params, x, y):
        return self.loss(params, x, y)


def make_data(rng, n):
    x = rng.uniform(-1, 1, (n, 5)).astype(np.float32)
    y = np.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] - x[:, 3] ** 2
    return jnp.asarray(x), jnp.asarray(y, jnp.float32)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--steps", type=int, default=150)
    ap.add_argument("--seed", type=int, default=0)
    args = ap.parse_args()
    rng = np.random.default_rng(args.seed)
    x, y = make_data(rng, 512)
    xt, yt = make_data(rng, 256)
    trainer = WarmupTrainer(Net(), peak=0.1, warmup=40)
    params, opt_state = trainer.init(jax.random.key(args.seed), x[:1])
    losses = []
    for _ in range(args.steps):
        params, opt_state, loss = trainer.step(params, opt_state, x, y)
        losses.append(loss)
    curve = np.asarray(jax.device_get(losses))
    for i in range(0, args.steps, 50):
        print(f"step {i}: loss {curve[i]:.4f}")
    print(f"final test loss {float(trainer.evaluate(params, xt, yt)):.5f}")


if __name__ == "__main__":
    main()
