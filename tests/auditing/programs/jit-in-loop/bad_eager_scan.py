# runs
import jax
import jax.numpy as jnp

w = jnp.eye(8) * 0.5


def rollout(x):
    def body(c, _):
        return jnp.tanh(c @ w), c[0, 0]

    return jax.lax.scan(body, x, None, length=5)  # expect: jit-in-loop


x = jnp.ones((4, 8))
for _ in range(6):
    x, h = rollout(x)
