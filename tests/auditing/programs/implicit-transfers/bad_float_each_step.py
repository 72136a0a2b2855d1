# runs
import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def step(w):
    w = jnp.tanh(w @ w) * 0.1
    return w, w.sum()


w, total = jnp.eye(800), 0.0
rng = np.random.default_rng(0)
for _ in range(40):
    w, loss = step(w)
    total += float(loss)  # expect: implicit-transfers
    rng.standard_normal(70_000).sort()
