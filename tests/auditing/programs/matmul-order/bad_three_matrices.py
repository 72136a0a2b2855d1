# runs
# Products of three matrices in the wrong order.
import jax, jax.numpy as jnp

@jax.jit
def step(x, a, b):
    return x + 0.01 * jnp.tanh(a @ b @ x)  # expect: matmul-order
a, b = (jax.random.normal(k, (1024, 1024)) * 0.03 for k in jax.random.split(jax.random.key(0)))
x = jnp.ones((1024, 4))
for _ in range(30):
    x = step(x, a, b)
print(x.sum())
