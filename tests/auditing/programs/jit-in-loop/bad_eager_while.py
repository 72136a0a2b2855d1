# runs
import jax
import jax.numpy as jnp


def newton(x, n):
    def body(c):
        return c[0] - 0.1 * jnp.sin(c[0]), c[1] + 1

    return jax.lax.while_loop(lambda c: c[1] < n, body, (x, 0))[0]  # expect: jit-in-loop


x = jnp.ones(10)
for _ in range(6):
    x = newton(x, 5)
