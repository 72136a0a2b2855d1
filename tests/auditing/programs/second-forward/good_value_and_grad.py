# runs
import jax
import jax.numpy as jnp


def loss(w, x):
    return jnp.mean(jnp.tanh(x @ w @ w) ** 2)


@jax.jit
def update(w, x):
    value, slope = jax.value_and_grad(loss)(w, x)
    return w - 0.1 * slope, value


w, x = jnp.eye(256), jnp.ones((256, 256))
for _ in range(8):
    w, value = update(w, x)
