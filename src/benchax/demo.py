"""The examples of `benchax demo`: a small multilayer perceptron, SELU eager against jitted, and a grid with accidents.

The first two are those of JAX's own tutorials, so that readers know them. Data are random: constants would be folded
away.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from benchax import workloads
from benchax.case import Case


def mlp_case() -> Case:
    return _case(workloads.mlp)


def selu_case() -> Case:
    return _case(workloads.selu)


def _case(fn: Callable[..., Any]) -> Case:
    return next(case for case in workloads.cases() if case.fn is fn)


GRID_SIZES = (4, 64, 1024, 16384)


def f1(x: Any) -> Any:
    return x**2 - 1


def f2(x: Any) -> Any:
    return x / 2


def f3(x: Any) -> Any:
    import jax.numpy as jnp

    return x**3 * jnp.sin(x)


def never_ends(x: Any) -> Any:
    """Stuck inside one compiled loop, where no signal of Python reaches it."""
    import jax

    return jax.lax.while_loop(lambda x: True, lambda x: x + 1, x)


def crashes(x: Any) -> Any:
    """Takes its process with it."""
    os.kill(os.getpid(), signal.SIGSEGV)


def too_short(x: Any) -> Any:
    """Gives a result of another shape than the others."""
    return x[1:]


def normal(key: Any, n: int) -> Any:
    """The inputs of the grid."""
    import jax

    return jax.random.normal(key, (n,))
