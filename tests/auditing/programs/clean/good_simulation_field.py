# runs
# A simulation of a field.
import functools
import jax, jax.numpy as jnp

@functools.partial(jax.jit, donate_argnums=0, static_argnames="steps")
def advance(field, rate, steps):
    def body(_, u):
        lap = sum(jnp.roll(u, s, a) for s in (1, -1) for a in (0, 1)) - 4 * u
        return u + rate * lap
    return jax.lax.fori_loop(0, steps, body, field)

field = jax.random.normal(jax.random.key(0), (512, 512))
for i in range(20):
    field = advance(field, 0.1, steps=10)
print(field.std())
