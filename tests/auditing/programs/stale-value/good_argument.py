# runs
import jax
import jax.numpy as jnp


@jax.jit
def step(x, temperature):
    return x * temperature


temperature = 1.0
x = jnp.ones(3)
for i in range(8):
    x = step(x, temperature)
    temperature *= 0.9
