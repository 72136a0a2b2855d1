# runs
# A benchmark that times the dispatch.
from time import time
import jax, jax.numpy as jnp

def benchmark(f, x, n=20):
    f(x).block_until_ready()
    start = time()
    for _ in range(n):
        y = f(x)  # expect: unawaited-timing
    elapsed = time() - start
    return elapsed / n

conv = jax.jit(lambda x: jax.lax.conv_general_dilated(x, jnp.ones((8, 8, 3, 3)), (1, 1), "SAME"))
print(benchmark(conv, jnp.ones((8, 8, 64, 64))))
