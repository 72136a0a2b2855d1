# runs
# A grid of differences that is small.
import jax, jax.numpy as jnp

@jax.jit
def forces(x):
    d = x[:, None, :] - x[None, :, :]
    r2 = (d**2).sum(-1) + jnp.eye(len(x))
    return (d * (1 / r2**2 - 0.1 / r2)[..., None]).sum(1)

@jax.jit
def simulate(x, v):
    def one(state, _):
        x, v = state
        v = v + 0.01 * forces(x)
        return (x + 0.01 * v, v), (v**2).sum()
    return jax.lax.scan(one, (x, v), None, length=200)

x = jax.random.normal(jax.random.key(0), (64, 3))
(x, v), energy = simulate(x, jnp.zeros_like(x))
print(energy[-1])
