# runs
import jax
import jax.numpy as jnp


@jax.jit
def loss(w, x):
    return jnp.mean((x @ w) ** 2)


@jax.jit
def update(w, x):
    return w - 0.1 * jax.grad(loss)(w, x)


w, x = jnp.ones((8, 1)), jnp.ones((4, 8))
for _ in range(10):
    w = update(w, x)
print(loss(w, x))
