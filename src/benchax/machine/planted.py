"""Kernels with a known, planted slowdown: more iterations of the same compiled loop.

`paired_runs/session.py` lets benchax judge them. They cover the usual kinds of work: many small steps, matrix
products, reading memory, and allocating memory. All of them compute long enough that the rest of a call hardly dilutes
the planted slowdown. The real slowdown of a call is measured, never assumed.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
from jax import lax

_PIECE = 2**14
_PIECES = 64


@dataclass(frozen=True)
class Kernel:
    """A function of arrays, with the requested number of iterations."""

    name: str
    make: Callable[[int], Callable[..., Any]]
    """Makes a new function each time, with this many iterations. Made in here, it travels to other processes by value.
    """
    specs: tuple[str, ...]
    """The specs of its arrays."""
    turns: int
    """The iterations of the baseline; a multiple of 20, so that +5 % is a whole number of iterations."""

    def slower(self, share: float) -> Callable[..., Any]:
        """Adds `share` of the iterations; 0 makes an unchanged copy."""
        return self.make(round(self.turns * (1 + share)))


def steps(turns: int) -> Callable[..., Any]:
    """Many small steps, one after the other."""

    def steps(x: Any) -> Any:
        return lax.fori_loop(0, turns, lambda _, y: 0.5 * jnp.sin(y) + x, x)

    return steps


def products(turns: int) -> Callable[..., Any]:
    """Products of small matrices."""

    def products(x: Any, w: Any) -> Any:
        return lax.fori_loop(0, turns, lambda _, y: jnp.tanh(y @ w), x)

    return products


def reading(turns: int) -> Callable[..., Any]:
    """4 MiB of memory, read piece by piece."""

    def reading(x: Any) -> Any:
        return _total(x, turns)

    return reading


def allocating(turns: int) -> Callable[..., Any]:
    """The same, with a result of 4 MiB, for which each call takes new memory."""

    def allocating(x: Any) -> Any:
        return x + _total(x, turns)[0]

    return allocating


def _total(x: Any, turns: int) -> Any:
    def add(i: Any, total: Any) -> Any:
        return total + 0.5 * lax.dynamic_slice(x, ((i % _PIECES) * _PIECE,), (_PIECE,))

    return lax.fori_loop(0, turns, add, jnp.zeros(_PIECE, x.dtype))


KERNELS = (
    Kernel("steps", steps, ("f32[64]",), 2000),
    Kernel("products", products, ("f32[8,32]", "f32[32,32]"), 500),
    Kernel("reading", reading, (f"f32[{_PIECE * _PIECES}]",), 300),
    Kernel("allocating", allocating, (f"f32[{_PIECE * _PIECES}]",), 600),
)
