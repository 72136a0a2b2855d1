"""Times inside compiled code: u32[..., 2], nanoseconds in two words, the low one first.

Without x64, JAX has no integers of 64 bits: the first operation on one would cut it to 32.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

NS = 10**9


def is_before(a: Any, b: Any) -> Any:
    """bool[] of two times."""
    return (a[1] < b[1]) | ((a[1] == b[1]) & (a[0] < b[0]))


def minus(a: Any, b: Any) -> Any:
    """a - b, where b is not the later one."""
    high = a[..., 1] - b[..., 1] - (a[..., 0] < b[..., 0])
    return jnp.stack([a[..., 0] - b[..., 0], high], -1)


def plus(a: Any, b: Any) -> Any:
    low = a[..., 0] + b[..., 0]
    return jnp.stack([low, a[..., 1] + b[..., 1] + (low < a[..., 0])], -1)


def from_seconds(seconds: Any) -> Any:
    """A duration, u32[2], of f32[] seconds: none below 0, and 68 years at most."""
    seconds = jnp.clip(seconds, 0.0, 2.0**31)
    whole, rest_ns = seconds.astype(jnp.uint32), (seconds - jnp.floor(seconds)) * NS
    # The product of two numbers of 32 bits, by halves. Half of NS is below 2^14, so that no sum reaches 2^32.
    low, high, ns_low, ns_high = whole & 0xFFFF, whole >> 16, jnp.uint32(NS & 0xFFFF), jnp.uint32(NS >> 16)
    middle = low * ns_high + (low * ns_low >> 16)
    crossed = (middle & 0xFFFF) + high * ns_low
    product = jnp.stack([whole * jnp.uint32(NS), high * ns_high + (middle >> 16) + (crossed >> 16)])
    return plus(product, jnp.stack([rest_ns.astype(jnp.uint32), jnp.uint32(0)]))
