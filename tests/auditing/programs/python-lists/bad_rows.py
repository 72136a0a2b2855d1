# runs
import jax
import jax.numpy as jnp

rows = [[0.5] * 512 for _ in range(64)]
step = jax.jit(lambda w, x: w + x.sum())
w = jnp.float32(0.0)
for _ in range(20):
    w = step(w, jnp.array(rows))  # expect: python-lists
