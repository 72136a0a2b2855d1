# runs
import jax
import jax.numpy as jnp


@jax.jit
def smooth(x):
    for k in range(1, 12):
        x = x - 0.1 * jnp.sin(x * k)
    return x


x = jnp.ones(16)
for _ in range(200):
    x = smooth(x)
