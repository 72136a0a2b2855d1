# runs
import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def step(w, batch):
    return w + batch.mean(0)


data = np.ones((20, 512, 512), np.float32)
w = jnp.zeros(512)
for batch in data:
    w = step(w, batch)  # expect: numpy-inputs
w.block_until_ready()
