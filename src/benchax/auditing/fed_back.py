"""Notes which results of a function come back as its arguments at its next call: what a Python loop carries.

`total = step(total, batch)` is a loop whose carry is `total`. Arrays are told apart as objects, and are not kept alive.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax


class Carried(NamedTuple):
    """What a function was given back at every call that was seen but the first."""

    calls: int = 0
    """At which it was so."""
    positions: tuple[tuple[int, int], ...] = ()
    """(leaf of its arguments, leaf of its results)."""


NOTHING_CARRIED = Carried()


class FedBack:
    """The results of the last call of each function, and which of them were arguments of every next one so far."""

    def __init__(self) -> None:
        self._results: weakref.WeakKeyDictionary[Any, list[Any]] = weakref.WeakKeyDictionary()
        self._carried: weakref.WeakKeyDictionary[Any, Carried] = weakref.WeakKeyDictionary()

    def note_call(self, fun: Any, leaves: Sequence[Any]) -> None:
        """Before it runs."""
        with contextlib.suppress(TypeError):  # a callable without hash or weak references: nothing is known
            results = self._results.get(fun)
            if results is None:
                return
            places = {id(one): j for j, each in enumerate(results) if (one := each()) is not None}
            found = tuple((i, places[id(leaf)]) for i, leaf in enumerate(leaves) if id(leaf) in places)
            before = self._carried.get(fun)
            same = found if before is None else tuple(pair for pair in before.positions if pair in found)
            self._carried[fun] = Carried(1 if before is None else before.calls + 1, same)

    def note_result(self, fun: Any, results: Sequence[Any]) -> None:
        """When it was started."""
        with contextlib.suppress(TypeError):
            self._results[fun] = [weakref.ref(one) for one in results if isinstance(one, jax.Array)]
            if len(self._results[fun]) != len(results):
                del self._results[fun]

    def forget_last(self) -> None:
        """Calls were not seen for a while."""
        self._results.clear()

    def carried(self, fun: Any) -> Carried:
        with contextlib.suppress(TypeError):
            return self._carried.get(fun, NOTHING_CARRIED)
        return NOTHING_CARRIED
