# runs
import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def hide(x, mask):
    return jnp.where(mask, x, 0.0)


x = jnp.ones((1024, 1024))
for _ in range(20):
    mask = jnp.asarray(np.tril(np.ones((1024, 1024), bool)))  # expect: repeated-device-put
    x = hide(x, mask)
x.block_until_ready()
