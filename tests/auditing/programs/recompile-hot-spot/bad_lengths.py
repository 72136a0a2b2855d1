# runs
import jax
import jax.numpy as jnp
import numpy as np

rng = np.random.default_rng(0)


@jax.jit
def score(x):
    return jnp.tanh(x @ x.T).sum()


for n in rng.permutation(np.arange(20, 30)):
    score(jnp.ones((n, 4)))  # expect: recompile-hot-spot
