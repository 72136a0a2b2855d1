"""Notes which functions a program calls with the arrays of another one's last call, and with what came of it.

Told of each call while calls are counted (`call_counter.py`). Arrays are remembered by weak references alone.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

MOST_FUNCTIONS = 20
"""That are compared with one another, the first that are compiled; each is kept alive, with the program that JAX traced
first."""

MOST_CALLS = 200
"""Of a function that are looked at: a model may have a thousand arrays, and they are compared at each call."""


class SharedUse(NamedTuple):
    """One function is called with arrays of another's call."""

    fun: int
    other: int
    is_after: bool
    """With results of the other beside them; else with nothing but its arguments."""


@dataclass
class _LastCall:
    read: Sequence[weakref.ref[Any]]
    made: Sequence[weakref.ref[Any]] = ()
    is_counted: bool = False


class SharedCalls:
    """What was seen of all calls so far."""

    def __init__(self) -> None:
        self.programs: dict[int, tuple[Any, str, Any]] = {}
        """(function, its name, closed jaxpr)."""
        self._last: dict[int, _LastCall] = {}
        self.lines: dict[int, str] = {}
        """Of the last call."""
        self.calls: Counter[int] = Counter()
        self.found: Counter[SharedUse] = Counter()

    def note_compile(self, fun: Any, name: str, jaxpr: Any) -> None:
        if jaxpr is not None and len(self.programs) < MOST_FUNCTIONS:
            self.programs.setdefault(id(fun), (fun, name, jaxpr))

    def note_call(self, fun: Any, leaves: Sequence[Any], where: str | None) -> None:
        """Before it runs."""
        if id(fun) not in self.programs or self.calls[id(fun)] >= MOST_CALLS:
            return
        with contextlib.suppress(TypeError):  # no weak references: nothing is known
            now = _LastCall(list(_refer(leaves)))
            mine = _ids(now.read)
            for number, other in self._last.items() if mine else ():
                if number != id(fun):
                    self._compare(id(fun), now, mine, number, other)
            self._last[id(fun)] = now
            self.calls[id(fun)] += 1
            self.lines[id(fun)] = where or ""

    def note_result(self, fun: Any, results: Sequence[Any]) -> None:
        last = self._last.get(id(fun))
        if last is not None:
            last.made = list(_refer(results))

    def _compare(self, fun: int, now: _LastCall, mine: set[int], number: int, other: _LastCall) -> None:
        its, made = _ids(other.read), _ids(other.made)
        # Of a call whose arrays are partly gone nobody knows what it was given.
        if mine <= its:
            self._count(SharedUse(fun, number, is_after=False), now)
        elif its and its <= mine and all(ref() is not None for ref in other.read):
            self._count(SharedUse(number, fun, is_after=False), other)
        elif mine & its and mine & made and mine <= its | made:
            self._count(SharedUse(fun, number, is_after=True), now)

    def _count(self, use: SharedUse, call: _LastCall) -> None:
        """Each call once."""
        if not call.is_counted:
            call.is_counted = True
            self.found[use] += 1


def _refer(leaves: Iterable[Any]) -> Iterable[weakref.ref[Any]]:
    return (weakref.ref(leaf) for leaf in leaves if getattr(leaf, "size", 0) > 1)


def _ids(refs: Iterable[weakref.ref[Any]]) -> set[int]:
    return {id(array) for array in (ref() for ref in refs) if array is not None}
