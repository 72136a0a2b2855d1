# runs
# An angle by arctan2.
import jax, jax.numpy as jnp, numpy as np

def angle(u, v):
    across = jnp.cross(u, v)
    sine = jnp.sqrt(jnp.sum(across**2, -1) + 1e-12)
    return jnp.arctan2(sine, jnp.sum(u * v, -1))

def energy(x, triples):
    i, j, k = triples.T
    return jnp.sum((angle(x[i] - x[j], x[k] - x[j]) - 1.9) ** 2)

@jax.jit
def relax(x, triples):
    return jax.lax.fori_loop(0, 100, lambda _, x: x - 1e-3 * jax.grad(energy)(x, triples), x)

triples = jnp.asarray(np.random.default_rng(0).permutation(99).reshape(33, 3))
x = relax(jax.random.normal(jax.random.key(0), (100, 3)), triples)
print(x.std())
