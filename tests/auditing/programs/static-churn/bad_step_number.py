# runs
import jax
import jax.numpy as jnp

from functools import partial


@partial(jax.jit, static_argnames="i")  # expect: static-churn
def step(x, i):
    return x * (1 + i) + jnp.sin(x)


x = jnp.ones(4)
for i in range(12):
    x = step(x, i=i)  # expect: static-churn
