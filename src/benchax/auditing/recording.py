"""The hook of `benchax audit -- python train.py`: notes what one process of a program does with JAX, in plain data.

Called inside that process, by `benchax.hooks.startup`. Programs, their reasons and the cache are watched from the
import of JAX to the end, which costs nothing on a warm call. Calls and transfers are watched for some seconds from the
first call on, and for a short while every ten seconds after that, each time until some were seen: meanwhile each call
takes about ten times as long.
What puts data on devices, waits, or uses up a random key is noted for the whole run (`host_calls.py`). Nothing is
judged here; `audited_program.py` does that, afterwards and elsewhere.
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
from types import FrameType
from typing import Any

import jax

from benchax.auditing.argument_lifetimes import ArgumentLifetimes
from benchax.auditing.call_notes import CallNotes
from benchax.auditing.eager_calls import EagerCalls
from benchax.auditing.host_calls import HostCalls
from benchax.auditing.recorded_functions import FunctionRecorder, RecordedFunction
from benchax.auditing.stale_values import StaleValues
from benchax.environment import capture
from benchax.results.transfers import ObservedTransfer, Transfers
from benchax.source_files import is_in_package, owner_of
from benchax.watching.cache import watch_cache
from benchax.watching.frames import JaxCall, calling, is_of_jax
from benchax.watching.transfers import watch_transfers
from benchax.watching.watch import main_thread_share, watch

HOOK = "benchax.auditing.recording:begin"
PROFILING = ("trace", "start_trace", "start_server")
"""Functions of `jax.profiler`: a program that calls one of them has been looked at."""
MOST_LINES = 10
OUTSIDE = ("stage", "fold_in", "split")
"""Parts of the names of eager operations that have their place outside of a program: what jnp.asarray sends, and a new
random key for each step."""
FIRST_SHARE, LATER_SHARE, PAUSE_SHARE = 0.5, 0.05, 0.5
"""Of the time for which calls are counted: the first window, those that follow, and the pauses between them. A later
window is a tenth of the pause before it, so that a long run is slowed by a few percent."""
LEAST_PAUSE_S = 5.0
ENOUGH_JITTED, ENOUGH_EAGER = 100, 5000
"""A window stays open until it has seen so many calls of one kind: where all of it went into compiling, as the first
one of a program often does, nothing was counted. So few calls are not slowed noticeably."""
LOOK_AGAIN_S = 0.2


def begin(settings: Mapping[str, Any]) -> Callable[[str], dict[str, Any]]:
    """Watches all threads from now on; what it returns ends that, and gives the report.

    Args:
        settings: calls_s: for how long calls and transfers are watched, in seconds from the first call; rules: ids of
            those that are asked about the functions of the program.
    """
    block = contextlib.ExitStack()
    found, cache = block.enter_context(watch("all")), block.enter_context(watch_cache())
    calls = CallCounter(settings["calls_s"])
    functions, host = FunctionRecorder(calls.note_compile), HostCalls(calls.on_read)
    used = _profiling()

    def finish(how: str) -> dict[str, Any]:
        calls.close()
        host.close()
        block.close()
        kept = [
            dataclasses.replace(
                one,
                held=calls.lifetimes.held(one.fun),
                repeated=calls.notes.repeated(one.fun),
                wide_lines=host.wide.asdict(),
                called_at=calls.notes.called_at(one.fun),
            )
            for one in functions.close()
        ]
        facts = {
            "main_thread_share": main_thread_share(found),
            "is_profiled": bool(used),
            "calls": calls.asdict(),
            "host": host.asdict(),
            "eager_calls": calls.eager_calls.asdict(),
            "stale": calls.stale.asdict(),
            **calls.notes.asdict(),
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
    """Nothing is read of a program that was ended. Of one that failed nothing is compiled again: who waits for it wants
    to see why."""
    if how != "exit":
        return None
    begun = perf_counter()
    from benchax.auditing import function_audits  # noqa: PLC0415  # with all the rules: no program should begin with that

    # The program has ended, and whoever looks at its terminal does not know what is still being done.
    if functions and sys.stderr is not None and sys.stderr.isatty():
        names = ", ".join(one.place.name for one in functions[: function_audits.MOST_BUILT])
        sys.stderr.write(f"benchax audit: the program has ended; looking at {names}\n")
    # Python sets `sys.last_type` where an exception that nobody caught ends the program.
    has_failed = getattr(sys, "last_type", None) is not None
    found = (function_audits.look if has_failed else function_audits.read)(functions, rules)
    return found | {"elapsed_s": perf_counter() - begun}


class CallCounter:
    """Counts calls of jitted functions and of eager operations, and what they transfer: for a while from the first call
    on, and then for a short while again and again, to the end."""

    def __init__(self, most_s: float) -> None:
        self.is_begun = self.is_closed = False
        self.most_s = most_s
        self.seen_s = 0.0
        self.windows = 0
        self.in_window: Counter[str] = Counter()
        self.jitted: Counter[str | None] = Counter()
        self.eager: Counter[str | None] = Counter()
        self.eager_inside: Counter[str | None] = Counter()
        """By the line that calls; the second of those that a package sends."""
        self.lifetimes = ArgumentLifetimes()
        self.notes = CallNotes()
        self.eager_calls = EagerCalls()
        self.stale = StaleValues()
        self.lock = threading.Lock()
        self.timer: threading.Timer | None = None
        self.opened: float | None = None
        self.block = contextlib.ExitStack()
        self.transfers = Transfers()
        self._open()

    def _open(self) -> None:
        self.opened = perf_counter()
        self.windows += 1
        self.in_window.clear()
        self.lifetimes.forget_last()
        found = self.block.enter_context(watch_transfers(self.on_call, self.notes.note_result, self.on_transfer))
        self.block.callback(self._take, found)

    def _take(self, found: Transfers) -> None:
        """What a window has seen, when it is closed."""
        for transfer in found.found.values():
            self.transfers.add(transfer)
        self.transfers.sees = found.sees
        self.transfers.remarks = found.remarks

    def on_call(self, fun: Any, leaves: Sequence[Any]) -> None:
        is_eager = is_of_jax(fun)
        call = calling(frozenset())
        with self.lock:
            if not self.is_begun:
                self.is_begun = True
                self.opened = perf_counter()
                self._after(FIRST_SHARE * self.most_s, self._pause)
            self.in_window["eager" if is_eager else "jitted"] += 1
            frame = sys._getframe(1)
            # What a library makes of a user's function stands in its files and is the user's.
            is_packages = call.user is None and is_in_package(frame)
            if not is_eager:
                self._count_call(call.where)
                self.lifetimes.note_call(fun, leaves)
                self.stale.note_call(fun)
                # What a package has jitted is a part of it, and can be called under another jit.
                if not is_packages:
                    self.eager_calls.note_jitted(frame)
            elif not (any(word in getattr(fun, "__name__", "") for word in OUTSIDE) or _is_indexing(frame)):
                self.eager[call.where] += 1
                self.eager_inside[call.where] += is_packages
                self.eager_calls.note_operation(frame, call.where)
            self.notes.note_call(fun, leaves, call, is_packages=is_packages)

    def on_transfer(self, transfer: ObservedTransfer) -> None:
        if transfer.direction == "device to host":
            self.on_read(transfer.where)

    def on_read(self, where: str | None) -> None:
        """A value was read back, at this line of the user's."""
        with self.lock:
            if self.opened is not None:
                self.eager_calls.note_read(sys._getframe(1), where)

    def note_compile(self, call: JaxCall) -> None:
        with self.lock:
            self.stale.note_compile(call)

    def _count_call(self, where: str | None) -> None:
        # What came before the first call has set the program up, each line once, however many operations it sent.
        if not self.jitted:
            self.eager.clear()
            self.eager_inside.clear()
            self.eager_calls.clear()
        self.jitted[where] += 1

    def _after(self, wait_s: float, then: Callable[[], None]) -> None:
        if self.is_closed:
            return
        self.timer = threading.Timer(wait_s, then)
        self.timer.daemon = True
        self.timer.start()

    def _pause(self) -> None:
        if self.in_window["jitted"] < ENOUGH_JITTED and self.in_window["eager"] < ENOUGH_EAGER:
            self._after(LOOK_AGAIN_S, self._pause)
            return
        self._close_window()
        self._after(max(LEAST_PAUSE_S, PAUSE_SHARE * self.most_s), self._resume)

    def _resume(self) -> None:
        with self.lock:
            if self.is_closed:
                return
            self._open()
            self._after(LATER_SHARE * self.most_s, self._pause)

    def _close_window(self) -> None:
        with self.lock:
            # Taken out under the lock, since the timer and the end of the program may both come here; closed outside of
            # it, since closing takes other locks.
            block, self.block = self.block, contextlib.ExitStack()
            if self.is_begun and self.opened is not None:
                self.seen_s += perf_counter() - self.opened
            self.opened = None
        block.close()

    def close(self) -> None:
        """Once; calls are as quick as ever from now on."""
        self.is_closed = True
        if self.timer is not None:
            self.timer.cancel()
        self._close_window()

    def asdict(self) -> dict[str, Any]:
        return {
            "seen_s": self.seen_s,
            "windows": self.windows,
            "is_seen": "host to device" in self.transfers.sees,
            "jitted": self.jitted.total(),
            "eager": self.eager.total(),
            "eager_lines": self.eager.most_common(MOST_LINES),
            "eager_inside": self.eager_inside.most_common(MOST_LINES),
            "jitted_lines": self.jitted.most_common(MOST_LINES),
        }


def _is_indexing(frame: FrameType | None) -> bool:
    """Does the line that sends an operation take a part of an array, x[i]? Some operations do that, and batches are
    chosen so between the calls of a step."""
    name = ""
    while frame is not None and owner_of(frame.f_code.co_filename) in ("jax", "benchax"):
        name, frame = frame.f_code.co_name, frame.f_back
    return name == "__getitem__"


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
