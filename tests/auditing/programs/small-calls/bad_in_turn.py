# runs
import jax
import jax.numpy as jnp


@jax.jit
def step(x):
    return x * 0.999 + 0.1


x = jnp.float32(1.0)
for _ in range(2500):
    x = step(x)  # expect: small-calls
