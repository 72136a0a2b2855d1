# runs
# An angle whose gradient is NaN where atoms are in line.
import jax
import jax.numpy as jnp
import numpy as np

def angle(u, v):
    c = jnp.sum(u * v, -1) / (jnp.sqrt(jnp.sum(u * u, -1)) * jnp.sqrt(jnp.sum(v * v, -1)))  # expect: where-gradient
    return jnp.where(jnp.abs(c) < 1.0, jnp.arccos(c), 0.0)
def energy(positions, triples):
    i, j, k = triples.T
    return jnp.sum((angle(positions[i] - positions[j], positions[k] - positions[j]) - 1.9) ** 2)

@jax.jit
def relax(positions, triples):
    return positions - 1e-3 * jax.grad(energy)(positions, triples)

positions = jax.random.normal(jax.random.key(0), (100, 3))
triples = jnp.asarray(np.random.default_rng(0).permutation(99).reshape(33, 3))
for _ in range(50):
    positions = relax(positions, triples)
print(positions.std())
