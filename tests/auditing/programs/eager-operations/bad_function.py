# runs
import jax
import jax.numpy as jnp


def smooth(x):  # expect: eager-operations
    for k in range(1, 12):
        x = x - 0.1 * jnp.sin(x * k)
    return x


x = jnp.ones(16)
for _ in range(30):
    x = smooth(x)  # expect: eager-operations
