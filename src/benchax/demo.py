"""The examples of `benchax demo`: a small multilayer perceptron, SELU eager against jitted, and a grid with accidents.

The first two are those of JAX's own tutorials, so that readers know them. Data are random: constants would be folded
away.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from benchax.case import Case, make_case

MLP_INPUTS = (("f32[128,4]", "f32[4,8]", "f32[8,12]"), "f32[1024,128]")


def mlp(layers: Sequence[Any], x: Any) -> Any:
    """x: f32[batch, 128] through dense layers 4, 8, 12 wide, relu between them."""
    import jax

    for w in layers[:-1]:
        x = jax.nn.relu(x @ w)
    return x @ layers[-1]


def selu(x: Any, alpha: float = 1.67, lambda_: float = 1.05) -> Any:
    """Scaled exponential linear unit."""
    import jax.numpy as jnp

    return lambda_ * jnp.where(x > 0, x, alpha * jnp.exp(x) - alpha)


def mlp_case() -> Case:
    return make_case(mlp, MLP_INPUTS)


def selu_case() -> Case:
    return make_case(selu, ("f32[1000000]",))


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
