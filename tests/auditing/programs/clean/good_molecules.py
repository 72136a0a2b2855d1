# runs
# Molecules.
import jax, jax.numpy as jnp

def energy(r):
    d2 = ((r[:, None] - r[None]) ** 2).sum(-1) + jnp.eye(len(r)) * 1e3
    s = 1.0 / d2**3
    return 2 * (s**2 - s).sum()

force = jax.grad(lambda r: -energy(r))

@jax.jit
def simulate(r, v):
    def body(_, state):
        r, v = state
        v = v + 5e-4 * force(r)
        return r + 1e-3 * v, v + 5e-4 * force(r + 1e-3 * v)
    return jax.lax.fori_loop(0, 100, body, (r, v))

r = jnp.stack(jnp.meshgrid(*[jnp.arange(4.0) * 1.2] * 3), -1).reshape(-1, 3)
v = jnp.zeros_like(r)
for i in range(10):
    r, v = simulate(r, v)
print(energy(r))
