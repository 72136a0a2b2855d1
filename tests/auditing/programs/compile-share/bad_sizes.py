# runs
import jax
import jax.numpy as jnp
import numpy as np


@jax.jit
def deep(x):
    for k in range(20):
        x = jnp.tanh(x * k) + jnp.sin(x)
    return x.sum()


for n in np.random.default_rng(0).permutation(np.arange(10, 22)):
    deep(jnp.ones(n))
# The finding is about the program, and has no line: only that nothing else fails is checked here.
x = deep(jnp.ones(30))  # expect: recompile-hot-spot
