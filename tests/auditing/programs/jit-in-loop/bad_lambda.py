# runs
import jax
import jax.numpy as jnp

x = jnp.ones(8)
for i in range(6):
    x = jax.jit(lambda a: a * 0.5 + i)(x)  # expect: jit-in-loop
