# runs
import jax
import jax.numpy as jnp


@jax.jit
def attend(cache, q):
    return jax.nn.softmax(cache @ q) @ cache


cache = jnp.ones((1, 8))
for i in range(7):
    out = attend(cache, jnp.ones(8))  # expect: growing-shapes
    cache = jnp.concatenate([cache, out[None]])
