# runs
import jax
import jax.numpy as jnp


@jax.jit
def score(row):
    return jnp.tanh(row).sum()


rows = list(jnp.ones((300, 16)) * jnp.arange(300.0)[:, None])
scores = [score(row) for row in rows]  # expect: small-calls
