# runs
import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def step(w):
    w = jnp.tanh(w @ w) * 0.1
    return w, w.sum()


w, losses = jnp.eye(300), []
for _ in range(40):
    w, loss = step(w)
    losses.append(loss)
print(sum(map(float, losses)))
