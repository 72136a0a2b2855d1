# runs
import jax
import jax.numpy as jnp


@jax.jit
def score(w, row):
    return jnp.tanh(row @ w) @ jnp.ones(8)


slope = jax.grad(score)
w, row = jnp.full((8, 8), 0.01), jnp.ones(8)
for _ in range(60):
    g = slope(w, row)  # expect: vmap-of-jit
