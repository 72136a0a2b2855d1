# runs
import jax
import jax.numpy as jnp


def body(total, x):
    for k in range(30):
        total = total + jnp.tanh(x * k).sum()
    return total


step = jax.jit(body)
total = 0.0  # expect: compiled-twice
for i in range(5):
    total = step(total, jnp.ones(8))  # expect: compiled-twice
