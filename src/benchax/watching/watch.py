"""`watch`: counts what JAX traces, lowers and compiles while a block runs, and says why.

    with benchax.watch() as w:
        train()
    print(w)

It costs nothing on a warm call, where JAX sends no event; `benchmarks/watch_cost.py` shows it. `compiles.py` explains
the meaning of an event, and `frames.py` finds the call behind it.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import threading
import time
import weakref
from array import array
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from types import CellType, CodeType, FunctionType
from typing import Any

import jax
import jax.monitoring
import numpy as np

from benchax.errors import BenchaxError, NotMeasured, UsageError
from benchax.grouping import group_by
from benchax.model import Remark
from benchax.printable import list_some
from benchax.repeating import goes_on, once_a_round
from benchax.results.watch import Compile, FunctionCount, Reason, ReasonKind, StepCompiles, Threads, Watch, WatchedSteps
from benchax.source_files import outward
from benchax.units import seconds
from benchax.watching import frames, signatures
from benchax.watching.compiles import CompileEvent, Kind, Listening
from benchax.watching.frames import JaxCall, calling
from benchax.watching.signatures import Signature
from benchax.wrappers import layers


@contextlib.contextmanager
def watch(threads: Threads = "this", *, ignored: frozenset[CodeType] = frozenset()) -> Iterator[Watch]:
    """Yields a live `Watch` of the traces, lowerings and compilations inside the block; it stays valid afterwards.

    You can nest blocks: each sees everything that happens inside it. As a decorator, `@benchax.watch()`, it works but
    shows nothing.

    Args:
        threads: "this" counts the compilations of the thread that entered the block; "all" counts every thread.
        ignored: functions by their code; compilations below them do not count.

    Raises:
        UsageError: threads is neither of the two.

    Example:
        >>> step = jax.jit(lambda x: x + 1)
        >>> with benchax.watch() as w:
        ...     for n in (2, 2, 3):
        ...         _ = step(np.ones(n))
        >>> len(w.recompiles)
        1
    """
    if not isinstance(threads, str) or threads not in ("this", "all"):
        raise UsageError(f"invalid threads={threads!r}", "one of: this, all")
    recorder = _Recorder(threads, ignored)
    found, begun = recorder.result, time.perf_counter()
    try:
        with recorder:
            yield found
    finally:
        found.wall_s, found.lost_events = time.perf_counter() - begun, not recorder.is_reliable


def main_thread_share(found: Watch) -> float | None:
    """Returns the share of the time watched that the main thread traced, lowered and compiled; None before the end.

    Threads overlap, so that there is no share of all of them together.
    """
    if not found.wall_s:
        return None
    main = threading.main_thread().name
    spent_s = sum(c.total_s for c in found.compiles if c.thread == main and not c.is_nested)
    return min(1.0, spent_s / found.wall_s)


@dataclass
class _Building:
    """A program between its trace and its compilation. A thread can have several: lowered by hand, compiled later."""

    fun: int | None
    """By its id; None where the call could not be seen."""
    place: FunctionLocation
    program: Compile
    """As far as it is known. The first event whose call is in sight settles the reasons: it is not when what was
    lowered by hand is compiled."""


class _Recorder(Listening):
    """Turns events into a `Watch`."""

    def __init__(self, threads: Threads, ignored: frozenset[CodeType]) -> None:
        self.result = Watch(threads=threads, cache_dir=jax.config.values["jax_compilation_cache_dir"])
        self._ignored = ignored
        self._functions = WatchedFunctions(from_start=threads == "all" and frames.has_traced_nothing())
        self._building: dict[tuple[int, str], _Building] = {}
        # Entered again if reading a call makes JAX send an event, as a user's own __eq__ or __repr__ can.
        self._lock = threading.RLock()
        # Ask what JAX knew before the watch, before it learns more. Only some JAX versions can answer.
        on_start = self._safely(self._meet) if frames.can_tell_earlier_calls() else None
        super().__init__(self._safely(self._step), on_start, threading.get_ident() if threads == "this" else None)

    def _safely(self, listener: Callable[[Any], None]) -> Callable[[Any], None]:
        """An exception in a listener would surface in the user's own call: it becomes a remark."""

        def heard(step: Any) -> None:
            try:
                below = (frame.f_code for frame in outward(sys._getframe(1)))
                if not self._ignored or self._ignored.isdisjoint(below):
                    with self._lock:
                        listener(step)
            except Exception as error:
                message = f"an event could not be read, and is missing: {error!r}"
                if all(remark.message != message for remark in self.result.remarks):
                    self.result.remarks.append(Remark("watch-failed", "warning", message))

        return heard

    def _meet(self, kind: Kind) -> None:
        call = frames.calling()
        if kind == "trace" and call.fun is not None:
            self._functions.meet(call, "")

    def _step(self, step: CompileEvent) -> None:
        self.result.cache_writes += step.fate == "written"
        call = frames.calling()
        self.result.cache_hits += step.fate == "hit"
        place = place_of(call, step.fun_name)
        if step.kind == "trace" and call.is_nested:  # up to jax 0.8.0; no program of its own comes of it
            if not place.is_eager:
                self._count(place, step, is_nested=True)
            return
        building = self._begin(call, place, step.kind)
        program = replace(building.program, **{f"{step.kind}_s": step.elapsed_s})
        if call.is_seen:
            program = replace(program, where=call.where)
        if not program.reasons and (call.is_seen or step.kind == "compile"):
            now = signatures.of(call) if call.is_seen else None
            why = self._functions.why(call, building.place, now, was_traced=program.trace_s is not None)
            program = replace(program, arguments=str(now or ""), reasons=why)
        building.program = program
        if step.kind == "compile":
            self._building.pop((threading.get_ident(), building.place.name), None)
            self.result.compiles.append(replace(program, from_cache=step.fate == "hit", is_nested=call.is_nested))
        self._count(building.place, step, is_nested=call.is_nested)

    def _begin(self, call: JaxCall, place: FunctionLocation, kind: Kind) -> _Building:
        """Returns the program that this event is a step of. An earlier event began it, or it begins now."""
        key = threading.get_ident(), place.name
        fun = None if call.fun is None else id(call.fun)
        found = self._building.get(key)
        is_over = found is not None and (kind == "trace" or (kind == "lower" and found.program.lower_s is not None))
        if found is None or is_over or (call.is_seen and found.fun != fun):
            thread = threading.current_thread().name
            new = Compile(place.name, place.defined, call.where, place.is_eager, False, None, None, 0.0, "", (), thread)
            found = self._building[key] = _Building(fun, place, new)
        return found

    def _count(self, place: FunctionLocation, step: CompileEvent, *, is_nested: bool) -> None:
        key = place.name, place.defined, place.is_eager
        old = self.result.counts.get(key) or FunctionCount(*key, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0)
        kind, elapsed_s = step.kind, step.elapsed_s
        self.result.counts[key] = replace(
            old,
            traces=old.traces + (kind == "trace"),
            lowerings=old.lowerings + (kind == "lower"),
            compiles=old.compiles + (kind == "compile"),
            cache_hits=old.cache_hits + (step.fate == "hit"),
            trace_s=old.trace_s + elapsed_s * (kind == "trace"),
            lower_s=old.lower_s + elapsed_s * (kind == "lower"),
            compile_s=old.compile_s + elapsed_s * (kind == "compile"),
            total_s=old.total_s + (0.0 if is_nested else elapsed_s),
        )


# `no_recompile` and `max_compiles`: an error where a block compiles more than it should, with the reasons in it.

MOST = 10
"""Lines for one function."""
HINTS: dict[ReasonKind, str] = {
    "first call": "call each function once before the block, with the shapes and dtypes that it will meet inside",
    "shape": "pad to a few sizes, or let the lengths of the data be the same in each step",
    "dtype": "convert before the call, so that it always sees one dtype",
    "weak type": "give Python numbers a dtype before the call: jnp.float32(1.0)",
    "static": "pass what takes many values as an array, and keep static what takes few",
    "new function": "make the function, and jax.jit it, once outside of the loop",
    "structure": "keep one tree structure: every key there from the first call on",
    "committed": "jax.device_put the arguments in the same way before the first call",
    "sharding": "jax.device_put the arguments in the same way before the first call",
    "keyword": "give each argument always by position, or always by name",
    "settings": "jax.jit the function once, and keep what it returns",
    "config": "set the configuration before the first call",
    "transformation": "warm up under the same transformation, or jax.jit what is outside of it",
    "cleared": "do not clear JAX's caches between the calls",
}


class RecompileError(BenchaxError, AssertionError):
    """More was compiled than was permitted. `watch` is what was seen.

    Example:
        >>> try:
        ...     with benchax.no_recompile():
        ...         _ = jax.jit(lambda x: x + 1)(np.ones(3))
        ... except benchax.RecompileError as error:
        ...     print(len(error.watch.compiles))
        1
    """

    watch: Watch | None = None


@contextlib.contextmanager
def max_compiles(n: int, *, eager: bool = False, ignored: frozenset[CodeType] = frozenset()) -> Iterator[Watch]:
    """Permits at most `n` programs to be compiled inside the block, and by this thread; also a decorator.

    First calls count. So does a program that comes from the persistent cache, since whether it is there is chance.

    Args:
        n: programs of jitted functions.
        eager: count also the one-operation programs of operations outside of jitted functions, such as jnp.ones(3).
        ignored: as for `watch`.

    Raises:
        RecompileError: at the end of the block, with every function, line and reason. An exception of the block itself
            goes before.
        NotMeasured: the events that it counts by were taken away inside the block.
        UsageError: n is no number of programs.

    Example:
        >>> with benchax.max_compiles(1):
        ...     _ = jax.jit(lambda x: x + 1)(np.ones(3))
    """
    if not isinstance(n, int) or isinstance(n, bool) or n < 0:
        raise UsageError(f"invalid max_compiles({n!r})", "a whole number from 0 up")
    with watch(ignored=ignored) as seen:
        yield seen
    _judge(seen, n, eager, f"max_compiles({n})")


@contextlib.contextmanager
def no_recompile(*, eager: bool = False) -> Iterator[Watch]:
    """Permits no compilation inside the block: every function in it must be warm. `max_compiles(0)` by another name.

    Example:
        >>> step = jax.jit(lambda x: x + 1)
        >>> _ = step(np.ones(3))
        >>> with benchax.no_recompile():
        ...     _ = step(np.zeros(3))
    """
    with watch() as seen:
        yield seen
    _judge(seen, 0, eager, "no_recompile()")


def _judge(seen: Watch, n: int, eager: bool, what: str) -> None:
    counted = [c for c in seen.compiles if eager or not c.is_eager]
    if len(counted) > n:
        others = f"; there were {len(seen.eager)}" if seen.eager else ""
        of_eager = "eager operations included" if eager else f"eager operations are not counted{others}"
        kinds = dict.fromkeys(reason.kind for c in counted for reason in c.reasons)
        hint = "\n      ".join(HINTS[kind] for kind in kinds if kind in HINTS)
        permitted = f"{f'at most {n}' if n else 'none'}{',' if eager else ';'} {of_eager}"
        error = RecompileError(_problem(counted, what), permitted, hint)
        error.watch = seen
        raise error
    # After the count: what was seen is an error even if more was missed.
    if seen.lost_events or seen.remarks:
        why = "; ".join(r.message for r in seen.remarks) or "jax.monitoring.clear_event_listeners() was called inside"
        raise NotMeasured(f"the compilations inside {what} could not all be counted: {why}")


def _problem(counted: list[Compile], what: str) -> str:
    by_function = group_by(counted, lambda c: (c.function, c.defined))
    lines = [f"{len(counted)} {'program was' if len(counted) == 1 else 'programs were'} compiled inside {what}"]
    for (name, defined), found in sorted(by_function.items(), key=lambda item: -_lost_seconds(item[1])):
        place = f" (defined at {defined})" if defined else ""
        lines.append(f"  {name}{place}: {len(found)}, {seconds(_lost_seconds(found))} by JAX's clock")
        places = [f"at {c.where or 'an unknown line'}: {c.why}" for c in found]
        lines += [f"    {place}" for place in list_some(places, MOST)]
    return "\n".join(lines)


def _lost_seconds(found: list[Compile]) -> float:
    return sum(c.total_s for c in found)


# ---- the functions that a watch has met -------------------------------------------------------------------------
#
# The functions that a watch has met: their names, where they are defined, and what each was compiled for.

CONTROL_FLOW = {"scan": "scan", "while": "while_loop", "cond": "cond"}
"""Primitives that, called outside of jit, compile a program for each body function, as `jax.jit` does: their functions
of `jax.lax`."""
FIRST_BODY = (
    "first call of jax.lax.{name} outside of jit with this body since the watch began; a body that is new in each call "
    "compiles in each call"
)


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

    def meet(self, call: JaxCall, name: str) -> _History:
        """Asks JAX what it knows of this function already, once. To be called before it is traced."""
        # Compare by identity, as JAX's caches do: an equal function that was created again is another one.
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
        is_new = not history.is_met
        history.is_met = True
        self._objects[place] += is_new
        if now is None:
            unknown = Reason("unknown", "not known why: this JAX doesn't show its call")
            return (Reason("first call", "first program of this name") if is_new else unknown,)
        if is_control_flow(call.fun):
            before = self._loops.get(place)
            self._loops[place] = now
            if before is not None:
                is_other = signatures.are_apart(now, before)
                return signatures.explain(now, [before], was_traced=True) if is_other else (_new_body(place),)
            if not self._from_start:
                return (Reason("first call", FIRST_BODY.format(name=place.name)),)
        before = [*self._before(history, now, was_traced=was_traced), *history.signatures]
        # After `_before`, so that this call is not found among the earlier ones.
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
        return Reason("first call", "first call since the watch began; this JAX doesn't report earlier ones")
    return Reason("unknown", "traced before the watch began, and compiled again; this JAX doesn't report what changed")


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
    *_, plain = own = list(layers(call.own))
    name = getattr(plain, "__name__", None) or type(plain).__name__
    code = getattr(plain, "__code__", None)
    defined = frames.place(code.co_filename, code.co_firstlineno) if code else None
    if is_control_flow(call.fun):
        return FunctionLocation(CONTROL_FLOW[call.fun.__name__], call.where, False)
    if call.user is None and frames.is_of_jax(call.fun):
        return FunctionLocation(program_name(event_name) or name, None, True)
    if call.user is None and hasattr(call.fun, "lower"):  # jax.jit of what is jitted already
        name = f"jit({name})"
    if any(isinstance(one, functools.partial) for one in own):
        name = f"partial({name})"
    return FunctionLocation(name, defined, False, tuple(_codes(call.fun)))


def program_name(event_name: str | None) -> str | None:
    """f of jit(f)."""
    return None if event_name is None else re.sub(r"^(\w+)\((.*)\)$", r"\2", event_name, flags=re.DOTALL)


def _codes(fun: Any) -> Iterator[CodeType]:
    """Yields the codes of a function, of the functions that it wraps, and of their closures: jax.vmap(f) holds f in a
    closure."""
    for one in layers(fun):
        held = [cell.cell_contents for cell in getattr(one, "__closure__", None) or () if cell != CellType()]
        yield from (f.__code__ for f in (one, *held) if isinstance(f, FunctionType))


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
        try:
            return self._known[fun]
        except (KeyError, TypeError):  # what has no hash, or takes no weak reference, is looked up at each call
            place = place_of(calling(), getattr(fun, "__name__", None))
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
            # Operations of a report every ten steps would merge these ten into one iteration.
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
