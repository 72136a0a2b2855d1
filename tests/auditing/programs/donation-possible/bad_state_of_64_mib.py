# runs
# A state of 64 MiB that is copied.
import jax, jax.numpy as jnp

@jax.jit
def advance(field, force):  # expect: donation-possible
    lap = sum(jnp.roll(field, s, a) for s in (1, -1) for a in (0, 1)) - 4 * field
    return field + 1e-3 * lap + force

field = jnp.zeros((2048, 4096))
force = jax.random.normal(jax.random.key(0), (2048, 4096))
for i in range(8):
    field = advance(field, force)
print(field.sum())
