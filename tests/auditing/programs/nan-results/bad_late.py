# runs
import jax
import jax.numpy as jnp


@jax.jit
def step(x):
    return jnp.sqrt(x - 0.1) ** 2  # expect: nan-results


x = jnp.float32(1.0)
for _ in range(60):
    x = step(x)
print(x)
