"""A small training loop, written as one writes the first one: it learns, and it wastes most of its time.

    python examples/train.py
    benchax audit -- python examples/train.py

It is here to be audited; each of its mistakes is one that people make.
"""

import jax
import jax.numpy as jnp
import numpy as np

SIZES = (32, 64, 64, 4)
STEPS = 60


def init(key):
    keys = jax.random.split(key, len(SIZES) - 1)
    pairs = zip(keys, SIZES[:-1], SIZES[1:], strict=True)
    return [(jax.random.normal(k, (m, n)) / m**0.5, jnp.zeros(n)) for k, m, n in pairs]


def predict(params, x):
    for w, b in params[:-1]:
        x = jnp.tanh(x @ w + b)
    w, b = params[-1]
    return x @ w + b


def loss(params, x, y):
    return jnp.mean((predict(params, x) - y) ** 2)


@jax.jit
def gradient(params, x, y):
    return jax.value_and_grad(loss)(params, x, y)


def batches(steps):
    rng = np.random.default_rng(0)
    for step in range(steps):
        rows = 64 if step % 10 else 40 + step  # what is left at the end of an epoch is a smaller batch
        x = rng.normal(size=(rows, SIZES[0])).astype(np.float32)
        yield x, np.tanh(x[:, : SIZES[-1]])


def train(steps=STEPS):
    params = init(jax.random.key(0))
    for x, y in batches(steps):
        value, grads = gradient(params, x, y)
        params = jax.tree.map(lambda p, g: p - 0.1 * g, params, grads)
        norm = jax.jit(lambda p: sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(p)))(params)
        if float(norm) > 1e6:
            raise SystemExit("diverged")
    return float(value)


if __name__ == "__main__":
    print(f"loss {train():.4f}")
