"""The events of `jax.monitoring` that tell of a compilation, and how to stop listening.

What the three kinds mean is told in `compiles.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import jax.monitoring

Kind = Literal["trace", "lower", "compile"]

KINDS: dict[str, Kind] = {
    "/jax/core/compile/jaxpr_trace_duration": "trace",
    "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
    "/jax/core/compile/backend_compile_duration": "compile",
}
HIT = "/jax/compilation_cache/cache_hits"
MISS = "/jax/compilation_cache/cache_misses"
"""Sent when a program is *written* to the persistent cache."""


def unregister(sort: Literal["event", "event_duration", "scalar"], listener: Callable[..., None]) -> bool:
    """Takes the listener away; False if JAX had lost it already, or offers no way (then it stays, closed).

    Public since jax 0.8.1; before that only a private function by callback (tried on 0.6.2 and 0.8.0). This is the one
    place that uses it, and can go with the support for jax below 0.8.1.
    """
    name = f"unregister_{sort}_listener"
    take_away = getattr(jax.monitoring, name, None) or getattr(
        jax._src.monitoring,  # noqa: TID251  # pyright: ignore[reportAttributeAccessIssue]
        f"_{name}_by_callback",
        None,
    )
    if take_away is None:
        return False
    try:
        take_away(listener)
    except (AssertionError, ValueError):  # ValueError: the assertion was compiled away by python -O
        return False
    return True
