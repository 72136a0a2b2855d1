"""Runs a function after a reading of the clock, with all that it computes: as a branch that is always taken.

A stamp holds back what is computed from its operands and nothing else. A positional encoding, a mask of a fixed key,
a loop over constants depend on no input: XLA computes them before the reading, or, where repetitions stand in a loop,
once for all (its pass `while-loop-invariant-code-motion`). From the branch of a conditional it moves nothing, and it
compiles what stands there as it compiles the function alone: constants are folded, loops optimised, work shared among
threads. Which branch is taken depends on the time, so that only the run can know. A conditional costs 0.07 µs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax

T = TypeVar("T")

NEVER = 2**32 - 1
"""The high word of a time in nanoseconds does not reach it in 500 years."""


def run_in_branch(function: Callable[[Any], T], inputs: Any, word: Any) -> T:
    """`function(inputs)`, a pytree of arrays; nothing of it is computed before `word`.

    Args:
        word: u32[], of which XLA knows nothing: the high word of a time, `time[1]`, or any other but NEVER.
    """
    shapes = jax.eval_shape(function, inputs)

    def never(_: Any) -> T:
        # Not an array that is at hand: XLA would have to copy it in every run.
        return jax.tree.map(_zeros, shapes)

    return lax.cond(word != jnp.uint32(NEVER), function, never, inputs)


def _zeros(shape: Any) -> Any:
    if jax.dtypes.issubdtype(shape.dtype, jax.dtypes.prng_key):
        return lax.full(shape.shape, 0, shape.dtype)
    return jnp.zeros(shape.shape, shape.dtype)
