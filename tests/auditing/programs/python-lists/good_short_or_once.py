# runs
import jax
import jax.numpy as jnp

table = jnp.array([0.5] * 4096)
step = jax.jit(lambda w, x: w + x.sum())
w = jnp.float32(0.0)
for _ in range(20):
    w = step(w, jnp.array([0.1, 0.2, 0.3]))
