# runs
import time

import jax
import jax.numpy as jnp


@jax.jit
def update(w):
    w = jnp.tanh(w @ w)
    return w, w.sum()


w = jnp.eye(50)
before = time.time()
for step in range(40):
    w, loss = update(w)
    if step % 10 == 0:
        rate = 10 / (time.time() - before)
        before = time.time()
        print(step, f"loss {float(loss):.4f}, {rate:.1f} steps a second")
