"""A clock inside compiled code (CPU): `stamp` reads it, `elapsed_s` takes differences, `tier()` says which one it is,
`tie` holds back what depends on no input.

`with_deadline` stops loops inside XLA. How a reading is pinned to its place in the program is told in `stamps.py`.
"""

from __future__ import annotations

from benchax.clock.deadline import with_deadline
from benchax.clock.selftest import tier
from benchax.clock.stamps import elapsed_s, stamp, tie
from benchax.clock.tiers import Tier

__all__ = ["Tier", "elapsed_s", "stamp", "tie", "tier", "with_deadline"]
