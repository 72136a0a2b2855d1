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

from benchax.errors import BenchaxError, NotMeasured, UsageError
from benchax.model import Remark
from benchax.results.watch import Compile, FunctionCount, Reason, ReasonKind, Threads, Watch
from benchax.units import seconds
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
        self.result = Watch(threads=threads, cache_dir=jax.config.values["jax_compilation_cache_dir"])
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
        raise UsageError(f"max_compiles({n!r}) cannot be", "a whole number from 0 up")
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
        error = RecompileError(_problem(counted, what), _describe_expected(n, seen, eager), _hint(counted))
        error.watch = seen
        raise error
    # Behind the count: what was seen is an error even where more may have been missed.
    if seen.lost_events or seen.remarks:
        why = "; ".join(r.message for r in seen.remarks) or "jax.monitoring.clear_event_listeners() was called inside"
        raise NotMeasured(f"the compilations inside {what} could not all be counted: {why}")


def _problem(counted: list[Compile], what: str) -> str:
    by_function: dict[tuple[str, str | None], list[Compile]] = {}
    for c in counted:
        by_function.setdefault((c.function, c.defined), []).append(c)
    lines = [f"{len(counted)} {'program was' if len(counted) == 1 else 'programs were'} compiled inside {what}"]
    for (name, defined), found in sorted(by_function.items(), key=lambda item: -_lost_seconds(item[1])):
        place = f" (defined at {defined})" if defined else ""
        lines.append(f"  {name}{place}: {len(found)}, {seconds(_lost_seconds(found))} by JAX's clock")
        lines += [f"    at {c.where or 'an unknown line'}: {c.why}" for c in found[:MOST]]
        lines += [f"    and {len(found) - MOST} more"] if len(found) > MOST else []
    return "\n".join(lines)


def _lost_seconds(found: list[Compile]) -> float:
    return sum(c.total_s for c in found)


def _describe_expected(n: int, seen: Watch, eager: bool) -> str:
    permitted = f"at most {n}" if n else "none"
    others = f"; there were {len(seen.eager)}" if seen.eager else ""
    return f"{permitted}{', eager operations included' if eager else f'; eager operations are not counted{others}'}"


def _hint(counted: list[Compile]) -> str:
    kinds = dict.fromkeys(reason.kind for c in counted for reason in c.reasons)
    return "\n      ".join(HINTS[kind] for kind in kinds if kind in HINTS)
