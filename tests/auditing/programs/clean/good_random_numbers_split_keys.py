# runs
# Random numbers from split keys.
import jax, jax.numpy as jnp

@jax.jit
def estimate(key, n_inside):
    def body(carry, _):
        key, inside = carry
        key, a, b = jax.random.split(key, 3)
        x, y = jax.random.uniform(a, (1000,)), jax.random.uniform(b, (1000,))
        return (key, inside + (x**2 + y**2 < 1).sum()), None
    (key, n_inside), _ = jax.lax.scan(body, (key, n_inside), None, length=100)
    return key, n_inside

key, n = jax.random.key(0), jnp.int32(0)
for i in range(20):
    key, n = estimate(key, n)
print(4 * n / 2e6)
