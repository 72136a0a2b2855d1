"""Notes which arguments a program still holds when it calls the same function again: those it cannot donate.

A training loop rebinds its state, `state = step(state, batch)`: at the next call the old one is gone, and its memory
could have become the new one's. Held by weak references alone, so that watching keeps nothing alive.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import jax

Reference = Callable[[], Any]


class ArgumentLifetimes:
    """Holds, for each function, the arguments of its last call, and which leaves were there at every next call so
    far."""

    def __init__(self) -> None:
        self._last: weakref.WeakKeyDictionary[Any, list[Reference]] = weakref.WeakKeyDictionary()
        self._held: weakref.WeakKeyDictionary[Any, set[int]] = weakref.WeakKeyDictionary()

    def note_call(self, fun: Any, leaves: Sequence[Any]) -> None:
        """To be told of each call before it runs, with its arguments flat."""
        with contextlib.suppress(TypeError):  # a callable object without hash or weak references: nothing is known
            if before := self._last.get(fun):
                alive = {i for i, reference in enumerate(before) if reference() is not None}
                # Held at every call, or it could have been donated at some of them: the program need not be changed for
                # those.
                self._held[fun] = self._held.get(fun, alive) & alive
            self._last[fun] = [_refer(leaf) for leaf in leaves]

    def forget_last(self) -> None:
        """Calls were not seen for a while: what is gone by the next one may have been needed in between."""
        self._last.clear()

    def held(self, fun: Any) -> frozenset[int]:
        """Leaves that outlived each call but the last; none where fewer than two calls were seen."""
        with contextlib.suppress(TypeError):
            return frozenset(self._held.get(fun, ()))
        return frozenset()


def _refer(leaf: Any) -> Reference:
    return weakref.ref(leaf) if isinstance(leaf, jax.Array) else _nothing


def _nothing() -> None:
    """What is no array of JAX's is never taken over, whoever holds it."""
