# runs
import jax
import jax.numpy as jnp


@jax.jit
def score(rows):
    return jnp.tanh(rows).sum(1)


rows = jnp.ones((300, 16)) * jnp.arange(300.0)[:, None]
scores = [score(rows[i : i + 100]) for i in range(0, 300, 100)]
