# runs
"""Compare ways to apply a Toeplitz operator; the timings warm up and wait."""
import functools
import time

import jax
import jax.numpy as jnp
import numpy as np

SIZE, REPEATS = 1024, 100


def dense(kernel, x):
    n = x.shape[-1]
    idx = jnp.arange(n)[:, None] - jnp.arange(n)[None, :]
    matrix = jnp.where(idx >= 0, kernel[jnp.abs(idx)], 0.0)
    return x @ matrix.T


def fourier(kernel, x):
    n = x.shape[-1]
    spec = jnp.fft.rfft(kernel, 2 * n) * jnp.fft.rfft(x, 2 * n, axis=-1)
    return jnp.fft.irfft(spec, 2 * n, axis=-1)[..., :n]


def recursive(decay, x):
    """For an exponential kernel the operator is a first-order recurrence."""

    def combine(left, right):
        a, b = left
        c, d = right
        return a * c, b * c + d

    coeff = jnp.full_like(x, decay)
    return jax.lax.associative_scan(combine, (coeff, x), axis=-1)[1]


def timed(fn, *args):
    fn = jax.jit(fn)
    result = jax.block_until_ready(fn(*args))
    took = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        jax.block_until_ready(fn(*args))
        took.append(time.perf_counter() - start)
    return result, np.median(took)


def main():
    decay = 0.995
    kernel = decay ** jnp.arange(SIZE, dtype=jnp.float32)
    x = jax.random.normal(jax.random.key(0), (32, SIZE))
    candidates = {
        "dense": functools.partial(dense, kernel),
        "fourier": functools.partial(fourier, kernel),
        "recursive": functools.partial(recursive, decay),
    }
    reference = None
    for name, fn in candidates.items():
        y, seconds = timed(fn, x)
        reference = y if reference is None else reference
        gap = float(jnp.max(jnp.abs(y - reference)))
        print(f"{name:10s} {1e3 * seconds:8.2f} ms  largest difference {gap:.1e}")


if __name__ == "__main__":
    main()
