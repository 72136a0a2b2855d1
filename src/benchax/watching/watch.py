"""`watch`: counts what JAX traces, lowers and compiles while a block runs, and says why.

    with benchax.watch() as w:
        train()
    print(w)

It costs nothing on a warm call, where JAX sends no event; `benchmarks/watch_cost.py` shows it. `compiles.py` explains
the meaning of an event, and `frames.py` finds the call behind it.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

import jax
import jax.monitoring

from benchax.errors import UsageError
from benchax.model import Remark
from benchax.results.watch import Compile, FunctionCount, Reason, Threads, Watch
from benchax.watching import frames, signatures
from benchax.watching.compiles import CompileEvent, Kind, Listening
from benchax.watching.frames import JaxCall
from benchax.watching.functions import FunctionLocation, WatchedFunctions, place_of


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
        raise UsageError(f"threads={threads!r} cannot be", "one of: this, all")
    recorder = _Recorder(threads, ignored)
    begun = time.perf_counter()
    try:
        with recorder.listening():
            yield recorder.result
    finally:
        recorder.result.wall_s = time.perf_counter() - begun


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
    where: str | None
    trace_s: float | None = None
    lower_s: float | None = None
    arguments: str = ""
    reasons: tuple[Reason, ...] | None = None
    """Settled by the first event whose call is in sight: it is not when what was lowered by hand is compiled."""


class _Recorder:
    """Turns events into a `Watch`."""

    def __init__(self, threads: Threads, ignored: frozenset[CodeType]) -> None:
        cache_dir: str | None = getattr(jax.config, "jax_compilation_cache_dir", None)
        self.result = Watch(threads=threads, cache_dir=cache_dir)
        self._thread = threading.get_ident() if threads == "this" else None
        self._ignored = ignored
        self._functions = WatchedFunctions(from_start=threads == "all" and frames.has_traced_nothing())
        self._building: dict[tuple[int, str], _Building] = {}
        # Entered again where reading a call makes JAX send an event, as a user's own __eq__ or __repr__ may.
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        # What JAX knew before the watch must be asked before it learns more; only a JAX that can be asked needs this.
        on_start = self._safely(self._start) if frames.can_tell_earlier_calls() else None
        listening = Listening(self._safely(self._step), on_start, self._thread)
        try:
            with listening:
                yield
        finally:
            self.result.lost_events = not listening.is_complete

    def _safely(self, listener: Callable[[Any], None]) -> Callable[[Any], None]:
        """An exception in a listener would surface in the user's own call: it becomes a remark."""

        def heard(step: Any) -> None:
            try:
                with self._lock:
                    listener(step)
            except Exception as error:
                self._remark("watch-failed", f"an event could not be read, and is missing: {error!r}")

        return heard

    def _start(self, kind: Kind) -> None:
        call = frames.calling(self._ignored)
        if kind == "trace" and call.fun is not None and not call.is_ignored:
            self._functions.meet(call, "")

    def _step(self, step: CompileEvent) -> None:
        kind, seconds, from_cache = step.kind, step.elapsed_s, step.fate == "hit"
        self.result.cache_writes += step.fate == "written"
        call = frames.calling(self._ignored)
        if call.is_ignored:
            return
        self.result.cache_hits += from_cache
        place = place_of(call, step.fun_name)
        if kind == "trace" and call.is_nested:  # up to jax 0.8.0; no program of its own comes of it
            if not place.is_eager:
                self._count(place, kind, seconds, from_cache=False, is_nested=True)
            return
        building = self._begin_building(call, place, kind)
        if kind == "trace":
            building.trace_s = seconds
        elif kind == "lower":
            building.lower_s = seconds
        if building.reasons is None and (call.is_seen or kind == "compile"):
            self._explain(building, call)
        if kind == "compile":
            self._end_building(building, call, seconds, from_cache=from_cache)
        self._count(building.place, kind, seconds, from_cache=from_cache, is_nested=call.is_nested)

    def _begin_building(self, call: JaxCall, place: FunctionLocation, kind: Kind) -> _Building:
        """Returns the program that this event is a step of. An earlier event began it, or it begins now."""
        key = threading.get_ident(), place.name
        fun = None if call.fun is None else id(call.fun)
        found = self._building.get(key)
        is_over = found is not None and (kind == "trace" or (kind == "lower" and found.lower_s is not None))
        if found is None or is_over or (call.is_seen and found.fun != fun):
            found = self._building[key] = _Building(fun, place, call.where)
        found.where = call.where if call.is_seen else found.where
        return found

    def _explain(self, building: _Building, call: JaxCall) -> None:
        now = signatures.of(call) if call.is_seen else None
        building.arguments = str(now) if now else ""
        building.reasons = self._functions.why(call, building.place, now, was_traced=building.trace_s is not None)

    def _end_building(self, building: _Building, call: JaxCall, seconds: float, *, from_cache: bool) -> None:
        self._building.pop((threading.get_ident(), building.place.name), None)
        place = building.place
        self.result.compiles.append(
            Compile(
                place.name,
                place.defined,
                building.where,
                place.is_eager,
                from_cache,
                building.trace_s,
                building.lower_s,
                seconds,
                building.arguments,
                building.reasons or (),
                threading.current_thread().name,
                call.is_nested,
            )
        )

    def _count(self, place: FunctionLocation, kind: Kind, seconds: float, *, from_cache: bool, is_nested: bool) -> None:
        key = place.name, place.defined, place.is_eager
        old = self.result.counts.get(key) or FunctionCount(*key, 0, 0, 0, 0, 0.0, 0.0, 0.0, 0.0)
        self.result.counts[key] = replace(
            old,
            traces=old.traces + (kind == "trace"),
            lowerings=old.lowerings + (kind == "lower"),
            compiles=old.compiles + (kind == "compile"),
            cache_hits=old.cache_hits + from_cache,
            trace_s=old.trace_s + seconds * (kind == "trace"),
            lower_s=old.lower_s + seconds * (kind == "lower"),
            compile_s=old.compile_s + seconds * (kind == "compile"),
            total_s=old.total_s + (0.0 if is_nested else seconds),
        )

    def _remark(self, code: str, message: str) -> None:
        if all(remark.message != message for remark in self.result.remarks):
            self.result.remarks.append(Remark(code, "warning", message))
