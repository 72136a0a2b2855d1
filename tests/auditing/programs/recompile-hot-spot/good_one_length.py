# runs
import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def score(x):
    return jnp.tanh(x @ x.T).sum()


for n in range(20, 30):
    score(jnp.ones((32, 4)))
