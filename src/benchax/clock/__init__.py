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

from benchax.clock.deadline import with_deadline
from benchax.clock.handlers import Tier, tier
from benchax.clock.stamps import elapsed_s, stamp, tie

__all__ = ["Tier", "elapsed_s", "stamp", "tie", "tier", "with_deadline"]
