"""The examples of `benchax demo`: a small multilayer perceptron, and SELU eager against jitted.

Both are those of JAX's own tutorials, so that readers know them. Data are random: constants would be folded away.
"""

from __future__ import annotations

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
