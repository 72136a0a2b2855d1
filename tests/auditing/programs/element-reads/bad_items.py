# runs
import jax
import jax.numpy as jnp

step = jax.jit(lambda x: x + 1)
x = jnp.zeros(64)
for _ in range(10):
    x = step(x)
    read = [x[t].item() for t in range(64)]  # expect: element-reads
