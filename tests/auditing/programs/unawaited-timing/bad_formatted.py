# runs
import time

import jax
import jax.numpy as jnp

step = jax.jit(lambda a: jnp.tanh(a @ a))
w = jnp.eye(100)
begun = time.time()
for _ in range(5):
    r = step(w)
print(f"{time.time() - begun:.3f} s")  # expect: unawaited-timing
