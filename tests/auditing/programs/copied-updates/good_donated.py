# runs
import jax
import jax.numpy as jnp

from functools import partial

step = jax.jit(lambda x: x + 1)


@partial(jax.jit, donate_argnums=0)
def update(rows, i, x):
    return rows.at[i].set(x)


rows, x = jnp.zeros((4096, 1024)), jnp.zeros(1024)
for i in range(60):
    x = step(x)
    rows = update(rows, i, x)
