# runs
import jax
import jax.numpy as jnp


def make_step(rate):
    def step(w):
        return w - rate * jnp.tanh(w)

    return jax.jit(step)  # expect: jit-in-loop


w = jnp.ones(8)
for i in range(6):
    step = make_step(0.1 * i)  # expect: jit-in-loop
    w = step(w)
