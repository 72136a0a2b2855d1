# runs
import jax
import jax.numpy as jnp

gradient = jax.jit(lambda w: w * 0.1)
w = jnp.ones(4)
for _ in range(60):
    g = gradient(w)
    w = w - 1e-3 * jnp.clip(jnp.tanh(g) + jnp.sin(g), -1, 1)  # expect: eager-operations
