"""A clock inside compiled code (CPU): `stamp` reads it, `elapsed_s` takes differences, `tier()` says which one it is,
`tie` holds back what depends on no input.

Three ways do not pin a reading: operands whose result is not used further, `has_side_effect=True`, and
`lax.optimization_barrier`. All three give wrong times as soon as XLA runs several operations at once.

`with_deadline` stops loops inside XLA. `stamps.py` explains how a reading is pinned to its place in the program.

Example:
    >>> @jax.jit
    ... def timed(x):
    ...     x, start = benchax.clock.stamp(x)
    ...     y, end = benchax.clock.stamp(jnp.sin(x))
    ...     return y, benchax.clock.elapsed_s(start, end)
    >>> y, seconds = timed(jnp.ones(8))
    >>> float(seconds) >= 0
    True
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchax.clock.deadline import with_deadline
    from benchax.clock.selftest import tier
    from benchax.clock.stamps import elapsed_s, stamp, tie
    from benchax.clock.tiers import Tier

_HOME = {
    "Tier": "tiers",
    "elapsed_s": "stamps",
    "stamp": "stamps",
    "tie": "stamps",
    "tier": "selftest",
    "with_deadline": "deadline",
}
"""Resolved on first use: what only looks at jaxprs must not wait for the clock."""

__all__ = ["Tier", "elapsed_s", "stamp", "tie", "tier", "with_deadline"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'benchax.clock' has no attribute {name!r}; public are: {', '.join(__all__)}")
    value = globals()[name] = getattr(import_module(f"benchax.clock.{_HOME[name]}"), name)
    return value
