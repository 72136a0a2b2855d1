# runs
import jax
import jax.numpy as jnp

step = jax.jit(lambda x: x + 1)
rows, x = jnp.zeros((16384, 1024)), jnp.zeros(1024)
for i in range(20):
    x = step(x)
    rows = rows.at[i].set(x)  # expect: copied-updates
