# runs
import time

import jax
import jax.numpy as jnp

step = jax.jit(lambda a: jnp.tanh(a @ a))
w = jnp.eye(100)


def measure(n):
    print(step(w).sum())
    begun = time.perf_counter()
    rs = [step(w) for _ in range(n)]
    print(n, time.perf_counter() - begun)  # expect: unawaited-timing
    return rs[-1]


measure(10)
