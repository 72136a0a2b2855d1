# runs
import timeit

import jax
import jax.numpy as jnp

step = jax.jit(lambda a: jnp.tanh(a @ a))
w = jnp.eye(100)
print(min(timeit.repeat(lambda: step(w), number=1, repeat=5)))  # expect: unawaited-timing
