"""Six kernels from 8 µs to 20 ms with planted slowdowns: what `verdicts.py` has tools judge.

They cover what a call can be: so short that it runs on the calling thread (k2), handed over (k20), a scan (k200),
memory traffic (k2m), allocation of the output (kal), matrix products (k20m). A slowdown is more turns of the compiled
work; how much longer they really take is measured, not assumed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "k2": ((1,),),
    "k20": ((64,),),
    "k200": ((8, 32), (32, 32)),
    "k2m": ((1 << 20,),),
    "kal": ((1 << 20,),),
    "k20m": ((128, 128), (128, 128)),
}
TURNS = {
    "k2": {"A/A": 20, "+2 %": 49, "+5 %": 114, "+10 %": 207},
    "k20": {"A/A": 100, "+2 %": 104, "+5 %": 109, "+10 %": 118},
    "k200": {"A/A": 254, "+2 %": 260, "+5 %": 269, "+10 %": 284},
    "k2m": {"A/A": 1180, "+2 %": 1204, "+5 %": 1242, "+10 %": 1304},
    "kal": {"A/A": 100, "+2 %": 103, "+5 %": 114, "+10 %": 127},
    "k20m": {"A/A": 362, "+2 %": 369, "+5 %": 380, "+10 %": 398},
}
"""Turns of the baseline (A/A), and of the slower ones: those of 5 and 10 % of the recordings that the method was chosen
by, those of 2 % in between, by what the 5 % were measured to be (docs/explanations/trust.md)."""
_PIECE = 1 << 14


def kernel(name: str, turns: int) -> Callable[..., Any]:
    """A new function each time."""

    def divide(x: Any) -> Any:
        y = x
        for _ in range(turns):
            y = x / (y + 0.5)
        return y

    def sines(x: Any) -> Any:
        return lax.fori_loop(0, turns, lambda _, y: 0.5 * jnp.sin(y) + x, x)

    def products(x: Any, w: Any) -> Any:
        return lax.fori_loop(0, turns, lambda _, y: jnp.tanh(y @ w), x)

    def stream(x: Any) -> Any:
        def add(i: Any, total: Any) -> Any:
            return total + 0.5 * lax.dynamic_slice(x, ((i % 64) * _PIECE,), (_PIECE,))

        return lax.fori_loop(0, turns, add, jnp.zeros(_PIECE, x.dtype))

    def allocate(x: Any) -> Any:
        return x + stream(x)[0]

    functions = {"k2": divide, "k20": sines, "k200": products, "k2m": stream, "kal": allocate, "k20m": products}
    return functions[name]


def data(name: str) -> tuple[Any, ...]:
    random = np.random.default_rng(0)
    return tuple(jnp.asarray(0.1 * random.standard_normal(shape, np.float32)) for shape in SHAPES[name])
