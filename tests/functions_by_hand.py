"""Inputs and functions: short, long, slow at first, and without an end; and calls that stand deep in Python."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

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


def under(frames: int, call: Callable[[], Any]) -> Any:
    """`call()`, so many frames further down."""
    return call() if frames == 0 else under(frames - 1, call)


def count_frames() -> int:
    """Frames above the caller's."""
    frame, count = sys._getframe().f_back, 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count
