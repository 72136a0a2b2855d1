# runs
import jax
import jax.numpy as jnp


@jax.jit
def loss(w, x):
    return jnp.mean(jnp.tanh(x @ w @ w) ** 2)


@jax.jit
def update(w, x):
    return w - 0.1 * jax.grad(loss)(w, x)


w, x = jnp.eye(256), jnp.ones((256, 256))
for _ in range(8):
    value = loss(w, x)  # expect: second-forward
    w = update(w, x)
