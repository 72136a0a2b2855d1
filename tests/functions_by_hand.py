"""Inputs and functions of grids: short, long, and without an end."""

from __future__ import annotations

import jax.numpy as jnp
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
