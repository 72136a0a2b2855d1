"""The hook of `benchax audit -- python train.py`: notes what one process of a program does with JAX, in plain data.

Called inside that process, by `benchax.wrapping.startup`. Programs, their reasons and the cache are watched from the
import of JAX to the end, which costs nothing on a warm call. Calls and transfers are watched for some seconds from the
first call on: meanwhile each call takes about ten times as long. Nothing is judged here; `program.py` does that,
afterwards and elsewhere.

The jitted functions that took longest to compile are remembered, so that rules can look at them when the program has
ended (`reading.py`). Of a call only shapes, dtypes and static values are kept, never an array. The function itself is
kept alive, or one that is made inside `main()` would be gone by then; so only a few are.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import jax
import numpy as np
from jax.core import Tracer

from benchax.case import Case, make_case
from benchax.environment import capture
from benchax.watching import frames
from benchax.watching.cache import watch_cache
from benchax.watching.compiles import KINDS, unregister
from benchax.watching.frames import JaxCall, calling, is_of_jax
from benchax.watching.functions import FunctionLocation, place_of
from benchax.watching.transfers import watch_transfers
from benchax.watching.watch import main_thread_share, watch

HOOK = "benchax.auditing.recording:begin"
PROFILING = ("trace", "start_trace", "start_server")
"""Functions of `jax.profiler`: a program that calls one of them has been looked at."""
MOST_LINES = 10


def begin(settings: Mapping[str, Any]) -> Callable[[str], dict[str, Any]]:
    """Watches all threads from now on; what it returns ends that, and gives the report.

    Args:
        settings: calls_s: for how long calls and transfers are watched, in seconds from the first call; rules: ids of
            those that are asked about the functions of the program.
    """
    block = contextlib.ExitStack()
    found, cache = block.enter_context(watch("all")), block.enter_context(watch_cache())
    calls, functions = CallCounter(settings["calls_s"]), FunctionRecorder()
    used = _profiling()

    def finish(how: str) -> dict[str, Any]:
        calls.close()
        block.close()
        facts = {
            "main_thread_share": main_thread_share(found),
            "is_profiled": bool(used),
            "calls": calls.asdict(),
        }
        return {
            "watch": found.asdict(),
            "cache": cache.asdict(),
            "transfers": calls.transfers.asdict(),
            "environment": _environment(has_backend=bool(found.compiles)),
            "facts": facts,
            "read": _read(functions.close(), settings["rules"], how),
        }

    return finish


def _read(functions: Sequence[RecordedFunction], rules: Sequence[str], how: str) -> dict[str, Any] | None:
    """Of a program that was ended, or that failed, nothing is read: who waits for it wants to see why."""
    if how != "exit" or getattr(sys, "last_type", None) is not None:
        return None
    begun = perf_counter()
    from benchax.auditing.reading import read  # noqa: PLC0415  # with all the rules: no program should begin with that

    return read(functions, rules) | {"elapsed_s": perf_counter() - begun}


class CallCounter:
    """Counts calls of jitted functions and of eager operations, and what they transfer, for a while."""

    def __init__(self, most_s: float) -> None:
        self.begun: float | None = None
        """At the first call."""
        self.seen_s = 0.0
        self.jitted: Counter[str | None] = Counter()
        self.eager: Counter[str | None] = Counter()
        """By the line that calls."""
        self.lock = threading.Lock()
        self.block = contextlib.ExitStack()
        self.transfers = self.block.enter_context(watch_transfers(self.on_call))
        self.timer = threading.Timer(most_s, self.close)
        self.timer.daemon = True

    def on_call(self, fun: Any) -> None:
        calls = self.eager if is_of_jax(fun) else self.jitted
        where = calling(frozenset()).where
        with self.lock:
            if self.begun is None:
                self.begun = perf_counter()
                self.timer.start()
            calls[where] += 1

    def close(self) -> None:
        """Once; calls are as quick as ever from now on."""
        self.timer.cancel()
        with self.lock:
            block, self.block = self.block, contextlib.ExitStack()
            if self.begun is not None and not self.seen_s:
                self.seen_s = perf_counter() - self.begun
        block.close()

    def asdict(self) -> dict[str, Any]:
        return {
            "seen_s": self.seen_s,
            "is_seen": "host to device" in self.transfers.sees,
            "jitted": self.jitted.total(),
            "eager": self.eager.total(),
            "eager_lines": self.eager.most_common(MOST_LINES),
        }


def _profiling() -> list[str]:
    """The list to which the program's own use of JAX's profiler is added, as it happens."""
    used: list[str] = []

    def note_profile(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            used.append(name)
            return function(*args, **kwargs)

        return call

    # JAX tells nobody of a profile. Wrapped this early, also `from jax.profiler import trace` takes the wrapper.
    for name in PROFILING:
        setattr(jax.profiler, name, note_profile(name, getattr(jax.profiler, name)))
    return used


def _environment(*, has_backend: bool) -> dict[str, Any] | None:
    """Devices are not asked of a program that has used none: the question would start a backend."""
    with contextlib.suppress(OSError):  # its folder was deleted under it: then no more than the rest is known
        return dataclasses.asdict(capture(with_jax=has_backend))
    return None


# ---- the functions that rules look at ------------------------------------------------------------------------------

MOST_KEPT = 3
"""Functions; each is kept alive, and compiled once more when the program has ended."""


@dataclass(frozen=True)
class RecordedFunction:
    """One function, as it was called for the program of it that took longest to compile."""

    place: FunctionLocation
    fun: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    settings: Mapping[str, Any]
    """Of its `jax.jit`, as `frames.JaxCall` has them."""
    compile_s: float

    @property
    def case(self) -> Case:
        static = (*self._setting("static_argnums"), *self._setting("static_argnames"))
        donate = (*self._setting("donate_argnums"), *self._setting("donate_argnames"))
        return make_case(self.fun, self.args, self.kwargs, name=self.place.name, static=static, donate=donate)

    @property
    def why_not(self) -> str:
        """Why it cannot be looked at; empty: it can."""
        given = (*self._setting("in_shardings_leaves"), *self._setting("out_shardings_leaves"))
        # By its name, for the class is private: what says that the caller has left the sharding to JAX.
        if any(type(one).__name__ != "UnspecifiedValue" for one in given):
            return "its jax.jit was given shardings"
        return "its jax.jit was given options of the compiler" if self._setting("compiler_options_kvs") else ""

    def _setting(self, name: str) -> tuple[Any, ...]:
        return tuple(self.settings.get(name) or ())


class FunctionRecorder:
    """Listens to JAX from now on. Costs nothing on a warm call, of which JAX tells nothing."""

    def __init__(self) -> None:
        self._kept: dict[FunctionLocation, RecordedFunction] = {}
        """By place: the lambdas that one line makes anew in each iteration are one function here."""
        self._lock = threading.Lock()
        jax.monitoring.register_event_duration_secs_listener(self._on_event)

    def close(self) -> list[RecordedFunction]:
        """No more is kept; those that were, longest first."""
        unregister("event_duration", self._on_event)
        with self._lock:
            kept, self._kept = self._kept, {}
        return sorted(kept.values(), key=lambda function: -function.compile_s)

    def _on_event(self, event: str, duration_secs: float, **_: Any) -> None:
        if KINDS.get(event) != "compile":
            return
        try:
            self._remember(frames.calling(frozenset()), duration_secs)
        except Exception:  # it would surface in the user's call; then this one is not looked at
            return

    def _remember(self, call: JaxCall, compile_s: float) -> None:
        if call.fun is None or call.is_nested or frames.is_of_jax(call.fun):
            return
        place = place_of(call, None)
        with self._lock:
            known = self._kept.get(place)
            if known is None or known.compile_s < compile_s:
                self._kept[place] = _record(call, place, compile_s)
            if len(self._kept) > MOST_KEPT:
                del self._kept[min(self._kept, key=lambda key: self._kept[key].compile_s)]


def _record(call: JaxCall, place: FunctionLocation, compile_s: float) -> RecordedFunction:
    static = {*(call.settings.get("static_argnums") or ()), *(call.settings.get("static_argnames") or ())}
    args = tuple(value if i in static else jax.tree.map(_shape, value) for i, value in enumerate(call.args))
    kwargs = {name: value if name in static else jax.tree.map(_shape, value) for name, value in call.kwargs.items()}
    return RecordedFunction(place, call.fun, args, kwargs, call.settings, compile_s)


def _shape(leaf: Any) -> Any:
    """Python's numbers stay what they are, for they are weakly typed."""
    if isinstance(leaf, Tracer):
        raise TypeError("called inside a transformation: its arguments are no arrays")
    if isinstance(leaf, jax.Array):
        sharding = leaf.sharding if len(leaf.sharding.device_set) > 1 else None
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding, weak_type=leaf.weak_type)
    if isinstance(leaf, np.ndarray | np.generic):
        return jax.ShapeDtypeStruct(leaf.shape, jax.dtypes.canonicalize_dtype(leaf.dtype))
    return leaf
