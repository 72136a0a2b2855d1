# runs
import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def attend(cache, q):
    return jax.nn.softmax(cache @ q) @ cache


for n in (8, 16, 32, 64, 128, 256):
    attend(np.ones((n, 8), np.float32), jnp.ones(8))
