# runs
import jax
import jax.numpy as jnp

key = jax.random.key(0)
a = jax.random.normal(key, (3,))
b = jax.random.uniform(key, (3,))  # expect: key-reuse
