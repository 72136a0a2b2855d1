# runs
import jax
import jax.numpy as jnp

step = jax.jit(lambda x: x.sum())
data = jnp.zeros((100, 3))
for i in range(100):
    step(data[i])
