# runs
import jax
import jax.numpy as jnp
import numpy as np

table = np.random.default_rng(0).random((1024, 512), np.float32)


@jax.jit
def rotate(x, table):
    return x * jnp.cos(table)


x = jnp.ones((1024, 512))
for _ in range(20):
    x = rotate(x, jax.device_put(table))  # expect: repeated-device-put
x.block_until_ready()
