"""The functions that a watch has met: their names, where they are defined, and what each was compiled for."""

from __future__ import annotations

import contextlib
import functools
import inspect
import re
import threading
import weakref
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import CellType, CodeType, FunctionType
from typing import Any

import numpy as np

from benchax.repeating import goes_on, once_a_round
from benchax.results.watch import Reason, StepCompiles, Watch, WatchedSteps
from benchax.watching import frames, signatures
from benchax.watching.frames import JaxCall, calling
from benchax.watching.signatures import Signature

CONTROL_FLOW = {"scan": "scan", "while": "while_loop", "cond": "cond"}
"""Primitives that, called outside of jit, compile a program for each body function, as `jax.jit` does: their functions
of `jax.lax`."""
FIRST_BODY = (
    "first call of jax.lax.{name} outside of jit with this body since the watch began; a body that is new in each call "
    "compiles in each call"
)
WRAPPERS = 20
"""The number of wrappers around one function that are inspected. Any further wrappers are ignored."""


@dataclass(frozen=True)
class FunctionLocation:
    """A function as its user finds it again: all lambdas of one line are one."""

    name: str
    defined: str | None
    is_eager: bool
    wrappers: tuple[CodeType, ...] = ()
    """The functions that are really called: jax.vmap(f) and jax.grad(f) are both defined at f, and are not one
    function."""


@dataclass
class _History:
    """The history of one function object."""

    still: weakref.ref[Any] | None
    """The object, as long as it lives: a number from `id` may be given again."""
    signatures: list[Signature] = field(default_factory=list[Signature])
    before: list[Signature] | None = None
    """The signatures of calls before the watch began; None: JAX cannot be asked."""
    is_met: bool = False


class WatchedFunctions:
    """The knowledge of one watch. Nothing is shared, so that nested watches do not take each other's calls for theirs.

    Args:
        from_start: JAX had traced nothing when the watch began: what it knows of a function comes from within.
    """

    def __init__(self, *, from_start: bool = False) -> None:
        self._from_start = from_start
        self._loops: dict[FunctionLocation, Signature] = {}
        self._histories: dict[object, _History] = {}
        self._objects = Counter[FunctionLocation]()
        self._unseen_programs = Counter[FunctionLocation]()

    def meet(self, call: JaxCall, name: str) -> _History:
        """Asks JAX what it knows of this function already, once. To be called before it is traced."""
        # By identity, as JAX's caches go: an equal function that was made anew is another one.
        key = name if call.fun is None else id(call.fun)
        found = self._histories.get(key)
        if found is None or (found.still is not None and found.still() is not call.fun):
            found = self._histories[key] = _History(_weak(call.fun))
            found.before = signatures.before_the_watch(call) if call.fun is not None else []
        return found

    def why(
        self, call: JaxCall, place: FunctionLocation, now: Signature | None, *, was_traced: bool
    ) -> tuple[Reason, ...]:
        """Why a program is compiled for this call; remembers the call."""
        history = self.meet(call, place.name)
        self._objects[place] += not history.is_met
        history.is_met = True
        if now is None:
            self._unseen_programs[place] += 1
            if self._unseen_programs[place] == 1:
                return (Reason("first call", "first program of this name"),)
            return (Reason("unknown", "not known why: its call cannot be seen in this JAX"),)
        if is_control_flow(call.fun):
            before = self._loops.get(place)
            self._loops[place] = now
            if before is not None:
                is_other = signatures.are_apart(now, before)
                return signatures.explain(now, [before], was_traced=True) if is_other else (_new_body(place),)
            if not self._from_start:
                return (Reason("first call", FIRST_BODY.format(name=place.name)),)
        before = [*self._before(history, now, was_traced=was_traced), *history.signatures]
        # Behind `_before`: this call must not be found among the earlier ones.
        history.signatures.append(now)
        if before:
            return signatures.explain(now, before, was_traced=was_traced)
        if self._objects[place] > 1:
            return (_new_object(place),)
        return (_first(history, now, was_traced=was_traced),)

    def _before(self, history: _History, now: Signature, *, was_traced: bool) -> list[Signature]:
        """Excludes signatures that can come from the trace of this very call. Under a transformation JAX sends no event
        for it, so it exists already when the function is first seen."""
        before = history.before or []
        if self._from_start:
            return []  # traces inside other functions; no program was compiled for them
        if now.transformation and not was_traced:
            return [s for s in before if signatures.are_apart(now, s)]
        return before


def _first(history: _History, now: Signature, *, was_traced: bool) -> Reason:
    under = f" under {now.transformation}" if now.transformation else ""
    if history.before is not None:
        return Reason("first call", f"first call{under}")
    if was_traced or under:
        return Reason("first call", "first call since the watch began; of earlier ones this JAX does not tell")
    return Reason("unknown", "traced before the watch began, and compiled again; this JAX does not tell what changed")


def _new_object(place: FunctionLocation) -> Reason:
    if place.is_eager:
        return Reason("static", "the operation with other parameters, such as sizes or axes")
    what = place.name if place.defined is None else f"{place.name} of {place.defined}"
    return Reason(
        "new function",
        f"new function object: {what} was made again, and each one is compiled; make it, and jax.jit it, once "
        "outside of the loop",
    )


def _new_body(place: FunctionLocation) -> Reason:
    return Reason(
        "new function",
        f"new body function: jax.lax.{place.name} outside of jit compiles for each function that it is given; put the "
        "call under jax.jit, or define the body once",
    )


def is_control_flow(fun: Any) -> bool:
    """Is this an eager call of `jax.lax.scan`, `while_loop`, or `cond`?"""
    return getattr(fun, "__name__", "") in CONTROL_FLOW and hasattr(fun, "_apply_primitive")


def _weak(fun: Any) -> weakref.ref[Any] | None:
    try:
        return weakref.ref(fun) if fun is not None else None
    except TypeError:
        return None


def place_of(call: JaxCall, event_name: str | None) -> FunctionLocation:
    """Returns the location of the called function. If it is not visible, the event's name replaces it."""
    if call.fun is None:
        name = program_name(event_name) or "a function"
        return FunctionLocation(f"{name}, inside a transformation" if call.is_seen else name, None, False)
    plain, is_partial = _plain(call.user.fun if call.user else call.fun)
    name = getattr(plain, "__name__", None) or type(plain).__name__
    code = getattr(plain, "__code__", None)
    defined = frames.place(code.co_filename, code.co_firstlineno) if code else None
    if is_control_flow(call.fun):
        return FunctionLocation(CONTROL_FLOW[call.fun.__name__], call.where, False)
    if call.user is None and frames.is_of_jax(call.fun):
        return FunctionLocation(program_name(event_name) or name, None, True)
    if call.user is None and hasattr(call.fun, "lower"):  # jax.jit of what is jitted already
        name = f"jit({name})"
    return FunctionLocation(f"partial({name})" if is_partial else name, defined, False, tuple(_codes(call.fun)))


def program_name(event_name: str | None) -> str | None:
    """f of jit(f)."""
    return None if event_name is None else re.sub(r"^(\w+)\((.*)\)$", r"\2", event_name, flags=re.DOTALL)


def _codes(fun: Any) -> Iterator[CodeType]:
    """Yields the codes of a function, of the functions that it wraps, and of their closures: jax.vmap(f) holds f in a
    closure."""
    for _ in range(WRAPPERS):
        held = [cell.cell_contents for cell in getattr(fun, "__closure__", None) or () if cell != CellType()]
        yield from (f.__code__ for f in (fun, *held) if isinstance(f, FunctionType))
        fun = getattr(fun, "__wrapped__", None)


def _plain(fun: Any) -> tuple[Any, bool]:
    """Under wrappers, methods and partials; was there a partial?"""
    is_partial = False
    for _ in range(WRAPPERS):
        fun = inspect.unwrap(fun)
        if isinstance(fun, functools.partial):
            fun, is_partial = fun.func, True
        elif inspect.ismethod(fun):
            fun = fun.__func__
        else:
            break
    return fun, is_partial


# The steps of a program, found by its calls, and the steps in which something was compiled.
#
# On a warm call JAX sends no event, so a watch alone knows no steps. If transfers are watched, every call is seen
# (`transfers.py`). The number of calls of each function shows where the rounds of the loop begin, by the same rule as
# in a profile (`repeating.py`). A profile chooses the function with the most time. Here no time is reliable, so it is
# the jitted function that took longest to compile. Steps have no times for the same reason.

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
