"""The steps of a program, found by its calls, and the steps in which something was compiled.

On a warm call JAX sends no event, so a watch alone knows no steps. If transfers are watched, every call is seen
(`transfers.py`). The number of calls of each function shows where the rounds of the loop begin, by the same rule as in
a profile (`repeating.py`). A profile chooses the function with the most time. Here no time is reliable, so it is the
jitted function that took longest to compile. Steps have no times for the same reason.
"""

from __future__ import annotations

import contextlib
import threading
import weakref
from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from benchax.repeating import goes_on, once_a_round
from benchax.results.watch import StepCompiles, Watch, WatchedSteps
from benchax.watching.frames import calling
from benchax.watching.functions import FunctionLocation, place_of

MOST_CALLS = 10_000_000
"""This many calls are remembered, in 16 bytes each; later calls belong to the last step."""


class StepCalls:
    """The calls of the main thread, each with how much had been compiled before it."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._places: dict[FunctionLocation, int] = {}
        self._known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._codes, self._compiled = array("q"), array("q")

    def hear(self, fun: Any, args_flat: Sequence[Any]) -> None:
        """As `watch_transfers` calls it, before the call is compiled."""
        if threading.current_thread() is not threading.main_thread() or len(self._codes) >= MOST_CALLS:
            return
        self._codes.append(self._code(fun))
        self._compiled.append(len(self._watch.compiles))

    def _code(self, fun: Any) -> int:
        with contextlib.suppress(TypeError):  # what takes no weak reference is looked up at each call
            if (known := self._known.get(fun)) is not None:
                return known
        place = place_of(calling(frozenset()), getattr(fun, "__name__", None))
        code = self._places.setdefault(place, len(self._places))
        with contextlib.suppress(TypeError):
            self._known[fun] = code
        return code

    def find(self) -> WatchedSteps | None:
        """Returns None if no call repeats until the end."""
        sequence, compiled = np.array(self._codes, np.int64), np.array(self._compiled, np.int64)
        places = list(self._places)
        calls = {i: np.flatnonzero(sequence == i) for i in range(len(places))}
        repeating = [i for i, at in calls.items() if goes_on(at, -1, len(sequence) - 1)]
        if not repeating:
            return None
        anchor = max(repeating, key=lambda i: (not places[i].is_eager, self._compile_s(places[i]), len(calls[i])))
        if not places[anchor].is_eager:
            # Operations of a report every ten steps would make these ten one round.
            chosen = np.isin(sequence, [i for i, place in enumerate(places) if not place.is_eager])
            sequence, compiled = sequence[chosen], compiled[chosen]
        begin = compiled[once_a_round(sequence, np.flatnonzero(sequence == anchor))].tolist()
        ends = [*begin, len(self._watch.compiles)]
        found = tuple(self._between(a, b) for a, b in pairwise(ends))
        return WatchedSteps(places[anchor].name, places[anchor].defined, found, self._between(0, begin[0]))

    def _between(self, begin: int, end: int) -> StepCompiles:
        mine = self._watch.compiles[begin:end]
        again = sum(not one.is_eager and not one.is_first for one in mine)
        return StepCompiles(len(mine), again, sum(one.total_s for one in mine if not one.is_nested))

    def _compile_s(self, place: FunctionLocation) -> float:
        count = self._watch.counts.get((place.name, place.defined, place.is_eager))
        return count.total_s if count else 0.0
