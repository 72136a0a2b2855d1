# runs
import jax
import jax.numpy as jnp

from functools import partial


@partial(jax.jit, static_argnums=0)
def collect(body, x):
    for _ in range(5):
        x = body(x)
    return x


x = jnp.ones(100)
for i in range(8):

    def body(x, i=i):
        return jnp.sin(x) * i

    x = collect(body, x)  # expect: static-churn
