"""Notes of which jitted functions early results hold NaN, while calls are counted.

Small results of calls 1, 2, 4 and 8 are looked at when the function is called next, so that the host waits for four of
them at most.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.copied_inputs import read_unseen
from benchax.watching.frames import is_of_jax

MOST_BYTES, MOST_LEAVES = 1 << 23, 300
"""Of the results of a call; of larger ones none is looked at."""
LOOKED_AT = (1, 2, 4, 8)


@dataclass
class _Results:
    """Of one function."""

    calls: int = 0
    waiting: Sequence[jax.Array] = ()
    """Of a call that is looked at."""
    nan_at: int | None = None
    """The first call of those with a result that is NaN."""
    looked_at: list[int] = field(default_factory=list[int])


class NanCalls:
    """Told of each call before it runs, and of its results when it was started."""

    def __init__(self) -> None:
        self._functions: weakref.WeakKeyDictionary[Any, _Results] = weakref.WeakKeyDictionary()

    def note_call(self, fun: Any) -> None:
        with contextlib.suppress(TypeError):  # no hash or no weak references: nothing is known
            if (known := self._functions.get(fun)) is not None:
                _look(known)

    def note_result(self, fun: Any, results: Sequence[Any]) -> None:
        if is_of_jax(fun):
            return
        with contextlib.suppress(TypeError):
            known = self._functions.setdefault(fun, _Results())
            known.calls += 1
            if known.calls in LOOKED_AT and known.nan_at is None:
                known.waiting = _keep(results)

    def nan_at(self, fun: Any) -> int | None:
        """The number of the first call that is known to give NaN: 1 is the first; 0 where none is, and None where no
        result was looked at."""
        with contextlib.suppress(TypeError):
            if (known := self._functions.get(fun)) is not None:
                _look(known)
                return known.nan_at or (0 if known.looked_at else None)
        return None


def _look(known: _Results) -> None:
    waiting, known.waiting = known.waiting, ()
    ready = [one for one in waiting if not one.is_deleted()]
    if ready:
        known.looked_at.append(known.calls)
        if any(np.isnan(read_unseen(one)).any() for one in ready):
            known.nan_at = known.calls


def _keep(results: Sequence[Any]) -> Sequence[jax.Array]:
    floats = [one for one in results if isinstance(one, jax.Array) and jnp.issubdtype(one.dtype, jnp.inexact)]
    if len(floats) > MOST_LEAVES or sum(one.nbytes for one in floats) > MOST_BYTES:
        return ()
    if any(len(one.sharding.device_set) > 1 for one in floats):
        return ()
    # Other objects for the same buffers: the user's own still end when the program lets go of them, which other notes
    # go by.
    return [one.addressable_data(0) for one in floats]
