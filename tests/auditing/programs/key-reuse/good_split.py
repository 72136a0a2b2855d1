# runs
import jax
import jax.numpy as jnp

first, second = jax.random.split(jax.random.key(0))
a = jax.random.normal(first, (3,))
b = jax.random.uniform(second, (3,))
