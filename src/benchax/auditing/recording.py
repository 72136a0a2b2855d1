"""The hook of `benchax audit -- python train.py`: notes what one process of a program does with JAX, in plain data.

Called inside that process, by `benchax.hooks.startup`. Programs, their reasons and the cache are watched from the
import of JAX to the end, which costs nothing on a warm call. Calls and transfers are watched for some seconds from the
first call on: meanwhile each call takes about ten times as long. Nothing is judged here; `audited_program.py` does
that, afterwards and elsewhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import jax

from benchax.auditing.argument_lifetimes import ArgumentLifetimes
from benchax.auditing.recorded_functions import FunctionRecorder, RecordedFunction
from benchax.environment import capture
from benchax.watching.cache import watch_cache
from benchax.watching.frames import calling, is_of_jax
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
        kept = [dataclasses.replace(one, held=calls.lifetimes.held(one.fun)) for one in functions.close()]
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
            "read": _read(kept, settings["rules"], how),
        }

    return finish


def _read(functions: Sequence[RecordedFunction], rules: Sequence[str], how: str) -> dict[str, Any] | None:
    """Nothing is read of a program that was ended, or that failed: who waits for it wants to see why."""
    # Python sets `sys.last_type` where an exception that nobody caught ends the program.
    if how != "exit" or getattr(sys, "last_type", None) is not None:
        return None
    begun = perf_counter()
    # The program has ended, and whoever looks at its terminal does not know what is still being done.
    if functions and sys.stderr is not None and sys.stderr.isatty():
        names = ", ".join(one.place.name for one in functions)
        sys.stderr.write(f"benchax audit: the program has ended; looking at {names}\n")
    from benchax.auditing.read_evidence import read  # noqa: PLC0415  # with all the rules: no program should begin with that

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
        self.lifetimes = ArgumentLifetimes()
        self.lock = threading.Lock()
        self.block = contextlib.ExitStack()
        self.transfers = self.block.enter_context(watch_transfers(self.on_call))
        self.timer = threading.Timer(most_s, self.close)
        self.timer.daemon = True

    def on_call(self, fun: Any, leaves: Sequence[Any]) -> None:
        calls = self.eager if is_of_jax(fun) else self.jitted
        where = calling(frozenset()).where
        with self.lock:
            if self.begun is None:
                self.begun = perf_counter()
                self.timer.start()
            calls[where] += 1
            if calls is self.jitted:
                self.lifetimes.note_call(fun, leaves)

    def close(self) -> None:
        """Once; calls are as quick as ever from now on."""
        self.timer.cancel()
        with self.lock:
            # Taken out under the lock, since the timer and the end of the program may both come here; closed outside of
            # it, since closing takes other locks.
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
