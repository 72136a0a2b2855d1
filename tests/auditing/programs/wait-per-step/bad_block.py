# runs
import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def step(w):
    return jnp.tanh(w @ w) * 0.1


w = jnp.eye(800)
rng = np.random.default_rng(0)
for _ in range(40):
    w = step(w)
    w.block_until_ready()  # expect: wait-per-step
    rng.standard_normal(200_000).sort()
