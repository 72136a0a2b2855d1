"""Inputs and functions: short, long, slow at first, and without an end."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

X = jnp.linspace(0.1, 1.0, 64)


def forever(x):
    return lax.while_loop(lambda c: True, lambda c: jnp.sin(c) + 1, x)


def endless_scan(x):
    return lax.scan(lambda c, _: (jnp.cos(c), None), x, None, length=10**9)[0]


def looping(x):
    return lax.fori_loop(0, 1000, lambda i, c: jnp.sin(c) * 1.01, x)


def double(x):
    return x * 2


def slow_at_first():
    """A function of a NumPy matrix that does 500 times the work in its first call."""
    calls = []

    def fn(x):
        calls.append(None)
        for _ in range(1 if len(calls) > 1 else 500):
            np.linalg.svd(x)
        return x

    return fn
