"""Calls of the handlers in `handlers.c`, for a given tier. `stamps.py` and `deadline.py` are what others use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.clock.tiers import Tier

NEVER = np.array([2**32 - 1, 2**32 - 1], np.uint32)
"""A time that no clock reaches."""
FIRST_STRIP = np.array([0, 0, 1], np.uint32)
"""The state of `tick` before the first look."""


def stamp(tier: Tier, arrays: list[jax.Array], after: Sequence[jax.Array] = ()) -> tuple[list[jax.Array], jax.Array]:
    """(the same arrays, aliased; the time, u32[2], when they and those of `after` are computed)."""
    # Two words of 32 bits: without x64 an int64 would come back whole, and be cut by the first operation on it.
    call = jax.ffi.ffi_call(
        tier.target("stamp"),
        [*(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays), jax.ShapeDtypeStruct((2,), jnp.uint32)],
        # An alias passes an array through without a copy, but for one when the program begins; a result of its own
        # would be copied at each reading.
        input_output_aliases={i: i for i in range(len(arrays))},
    )
    *passed, time = call(*arrays, *after)
    return passed, time


def spin(tier: Tier, x: jax.Array, ns: int) -> jax.Array:
    """`x`, `ns` nanoseconds later: a function of known duration, to measure measuring with."""
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return jax.ffi.ffi_call(tier.target("spin"), shape, input_output_aliases={0: 0})(x, ns=np.int64(ns))


def deadline(tier: Tier, seconds: Any, after: Any, latest: Any = NEVER) -> jax.Array:
    """Returns the time (u32[2]) `seconds` after `after` was computed, or `latest` if that is earlier.

    Args:
        seconds: f32[], can be traced. Infinity and NaN mean no separate limit; a value at or below 0 has passed
            already.
        after: an array that is ready when the time begins to run; it is not read.
        latest: u32[2].
    """
    # The handlers never look at `after`: being an operand of theirs is what makes XLA compute it first.
    call = jax.ffi.ffi_call(tier.target("arm"), jax.ShapeDtypeStruct((2,), jnp.uint32))
    return call(jnp.asarray(seconds, jnp.float32), jnp.asarray(latest, jnp.uint32), jnp.asarray(after))


def tick(tier: Tier, until: Any, state: Any, after: Any, *, must_raise: bool = False) -> tuple[jax.Array, jax.Array]:
    """Looks at the clock after a strip of a loop.

    Args:
        until: u32[2], the deadline.
        state: u32[3]: when it looked last (0: never) and how many iterations the strip had; see FIRST_STRIP.
        after: an array that the strip has computed, such as its counter; a small one.
        must_raise: ends the whole program with DEADLINE_EXCEEDED where the deadline has passed.

    Returns:
        (state, is_expired): u32[3] with the length of the next strip in its last word, and bool[].
    """
    shapes = (jax.ShapeDtypeStruct((3,), jnp.uint32), jax.ShapeDtypeStruct((), jnp.bool_))
    state, is_expired = jax.ffi.ffi_call(tier.target("tick"), shapes)(
        jnp.asarray(until, jnp.uint32), jnp.asarray(state, jnp.uint32), jnp.asarray(after), hard=np.int64(must_raise)
    )
    return state, is_expired
