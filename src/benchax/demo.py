"""The examples of `benchax demo`: a small multilayer perceptron, two orders of the same product, and a grid with
accidents."""

from __future__ import annotations

import os
import signal
from typing import Any

from benchax import workloads
from benchax.case import Case


def mlp_case() -> Case:
    return next(case for case in workloads.cases() if case.fn is workloads.mlp)


def ab_first(a: Any, b: Any, x: Any) -> Any:
    """(A B) x: a product of two matrices, which costs n times as much as a product with a vector."""
    return (a @ b) @ x


def bx_first(a: Any, b: Any, x: Any) -> Any:
    """A (B x): the same result by two products with a vector. XLA keeps the order of the source."""
    return a @ (b @ x)


PRODUCT = ("benchax.demo:ab_first", "benchax.demo:bx_first", "f32[512,512]", "f32[512,512]", "f32[512]")
"""The words of `benchax compare`."""
GRID_SIZES = (4, 64, 1024, 16384)


def f1(x: Any) -> Any:
    return x**2 - 1


def f2(x: Any) -> Any:
    return x / 2


def f3(x: Any) -> Any:
    import jax.numpy as jnp

    return x**3 * jnp.sin(x)


def never_ends(x: Any) -> Any:
    """Hangs inside a compiled loop, which Python's signals don't reach."""
    import jax

    return jax.lax.while_loop(lambda x: True, lambda x: x + 1, x)


def crashes(x: Any) -> Any:
    """Kills its process."""
    os.kill(os.getpid(), signal.SIGSEGV)


def too_short(x: Any) -> Any:
    """Returns a shorter result than the others."""
    return x[1:]


def normal(key: Any, n: int) -> Any:
    """The inputs of the grid."""
    import jax

    return jax.random.normal(key, (n,))
