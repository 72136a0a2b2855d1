"""Watches the calls of a program: for a while from the first call on, then for a short while again and again.

Each watched call takes about ten times as long, so a long run is watched for a few percent of its time.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter
from types import FrameType
from typing import Any

import jax

from benchax.auditing.recorder.functions import FunctionRecorder, name_inputs
from benchax.auditing.recorder.log import Event, FunctionFacts, Kind, Log, look
from benchax.auditing.recorder.rounded import LostDigitsNotes
from benchax.profiling.stack_sampler import PacedSampler
from benchax.results.watch import ObservedTransfer, Transfers
from benchax.source_files import is_generated, outward, owner_of
from benchax.watching.frames import JaxCall, calling, is_of_jax
from benchax.watching.functions import place_of
from benchax.watching.transfers import BatchedCall, clock, watch_transfers

# Samples the lines of your code that the main thread runs between calls, such as loading a batch.
#
# Samples in which JAX or benchax is on the stack are left out: there the program dispatches, compiles, or waits.

MOST_SHARE = 0.01
"""The share of the time that looking can take. Watching calls takes more than that."""
SWITCH_S = 5e-5
"""The work of the host between two waits may be short: with Python's usual pace, samples would fall into the waits."""


class HostSampler(PacedSampler):
    """Adds a "sample" to the log for each look at the main thread; `note` is (lines outermost first, seconds)."""

    def __init__(self, log: Log) -> None:
        super().__init__(MOST_SHARE, SWITCH_S)
        self._log = log
        self._last = perf_counter()

    def sample(self, frame: FrameType, late_s: float) -> None:
        now = perf_counter()
        elapsed_s, self._last = now - self._last, now
        if stack := _host_lines(frame):
            self._log.add(Event("sample", "", stack[-1], now, note=(stack, elapsed_s)))


def _host_lines(innermost: FrameType) -> tuple[str, ...]:
    lines: list[str] = []
    for frame in outward(innermost):
        owner = owner_of(frame.f_code.co_filename)
        if owner in ("jax", "benchax"):
            return ()
        if owner == "user" and not is_generated(frame.f_code.co_filename):
            lines.append(f"{frame.f_code.co_filename}:{frame.f_lineno}")
    return tuple(reversed(lines))


FIRST_SHARE, LATER_SHARE, PAUSE_SHARE = 0.5, 0.05, 0.5
"""The first window, later ones, and the pauses between them, as shares of the time for which calls are watched."""
LEAST_PAUSE_S = 5.0
ENOUGH: dict[Kind, int] = {"call": 2000, "operation": 5000, "read": 20_000}
"""A window stays open until it has seen this many of one kind: a program that compiles at first makes few calls."""
LOOK_AGAIN_S = 0.2


class CallWindows:
    """Adds calls, eager operations and reads to a log, until `close`."""

    def __init__(self, log: Log, functions: FunctionRecorder, most_s: float) -> None:
        self.log, self.functions, self.most_s = log, functions, most_s
        self.transfers = Transfers()
        self.is_begun = self.is_closed = False
        self._lost = LostDigitsNotes(log)
        self._before: Counter[Any] = Counter()
        self._lock = threading.Lock()
        self._timer: threading.Timer | None = None
        self._opened = 0.0
        self._running = threading.local()
        self._block = contextlib.ExitStack()
        self._open()

    @property
    def is_open(self) -> bool:
        return bool(self._opened)

    def _open(self) -> None:
        self._opened = perf_counter()
        self._before = Counter(self.log.counts)
        self.log.add(Event("window", "", ""))
        found = self._block.enter_context(watch_transfers(self._hear, self._hear_result, self._hear_transfer))
        self._block.callback(self._take, found)
        sampler = HostSampler(self.log)
        sampler.start()
        self._block.callback(sampler.stop)

    def _take(self, found: Transfers) -> None:
        for transfer in found.found.values():
            self.transfers.add(transfer)
        self.transfers.sees, self.transfers.remarks = found.sees, found.remarks

    def _hear(self, fun: Any, leaves: Sequence[Any]) -> None:
        """Before a call runs."""
        with self._lock:
            if not self.is_begun:
                self.is_begun = True
                self._opened = perf_counter()
                self._after(FIRST_SHARE * self.most_s, self._pause)
        log, serial = self.log, self.log.function(fun)
        is_operation = _is_operation(fun)
        stack = look(sys._getframe(1), log)
        event = Event("operation" if is_operation else "call", getattr(fun, "__name__", ""), stack.where, clock())
        event.function, event.reads, event.caller, event.path = serial, log.ids(leaves), stack.caller, stack.path
        if is_operation:
            event.note = "index" if stack.is_indexing else None
            event.size = getattr(leaves[0], "nbytes", 0) if leaves else 0
        else:
            event.by = self._facts(serial, fun, leaves).name
            event.note = "batched" if isinstance(fun, BatchedCall) else None
            self.functions.hear_call(serial, fun, leaves)
        self._lost.note_call(leaves, stack.where)
        self._stack().append(log.add(event))

    def _hear_result(self, fun: Any, leaves: Sequence[Any], results: Sequence[Any]) -> None:
        """When a call has been started."""
        serial = self.log.function(fun)
        running = self._stack()
        while running:
            event = running.pop()
            if event.function == serial:  # the others have raised
                event.makes, event.ended = self.log.ids(results), clock()
                break
        if not _is_operation(fun):
            self.functions.hear_result(serial, results)

    def _stack(self) -> list[Event]:
        if not hasattr(self._running, "events"):
            self._running.events = []
        return self._running.events

    def _facts(self, serial: int, fun: Any, leaves: Sequence[Any]) -> FunctionFacts:
        facts = self.log.functions.get(serial)
        if facts is None or len(facts.names) != len(leaves):
            if isinstance(fun, BatchedCall):
                facts = FunctionFacts(fun.__name__, fun.defined, tuple(f"argument {i}" for i in range(len(leaves))))
            else:
                facts = _describe(calling(frozenset()), leaves)
            self.log.functions[serial] = facts
        return facts

    def _hear_transfer(self, transfer: ObservedTransfer) -> None:
        if transfer.direction == "device to host":
            now = clock()
            stack = look(sys._getframe(1), self.log)
            event = Event("read", transfer.by, transfer.where or "", now - (transfer.elapsed_s or 0.0), now)
            event.path, event.size, event.caller = stack.path, transfer.size_bytes, stack.caller
            self.log.add(event)

    def _after(self, wait_s: float, then: Callable[[], None]) -> None:
        if not self.is_closed:
            self._timer = threading.Timer(wait_s, then)
            self._timer.daemon = True
            self._timer.start()

    def _pause(self) -> None:
        if all(self.log.counts[kind] - self._before[kind] < enough for kind, enough in ENOUGH.items()):
            self._after(LOOK_AGAIN_S, self._pause)
            return
        self._close_window()
        self._after(max(LEAST_PAUSE_S, PAUSE_SHARE * self.most_s), self._resume)

    def _resume(self) -> None:
        with self._lock:
            if self.is_closed:
                return
            self._open()
            self._after(LATER_SHARE * self.most_s, self._pause)

    def _close_window(self) -> None:
        with self._lock:
            # Taken under the lock: the timer and the end of the program may both come here.
            block, self._block = self._block, contextlib.ExitStack()
            if self.is_begun and self._opened:
                self.log.seen_s += perf_counter() - self._opened
            self._opened = 0.0
        block.close()

    def close(self) -> None:
        """Ends watching; calls are as fast as before."""
        self.is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._close_window()


def _is_operation(fun: Any) -> bool:
    """Is this an operation of JAX, and not a jitted function of the user's?"""
    if isinstance(fun, BatchedCall):
        return fun.is_of_jax
    return is_of_jax(fun) and getattr(fun, "__module__", "") != "jax._src.pmap"


def _describe(call: JaxCall, leaves: Sequence[Any]) -> FunctionFacts:
    static = {*(call.settings.get("static_argnums") or ()), *(call.settings.get("static_argnames") or ())}
    names = name_inputs(call, static)
    if len(names) != len(leaves):
        names = tuple(f"argument {i}" for i in range(len(leaves)))
    return FunctionFacts(name_of(call), place_of(call, None).defined or "", names, _wanted_shardings(call))


def name_of(call: JaxCall) -> str:
    fun = call.user.fun if call.user else call.fun
    name = getattr(fun, "__name__", None) or type(fun).__name__
    # A class says more than `__call__`.
    return fun.__qualname__ if name == "__call__" else name


def _wanted_shardings(call: JaxCall) -> tuple[Any, ...]:
    """One for each leaf of the arguments, or one for all of them."""
    wanted = tuple(call.settings.get("in_shardings_leaves") or ())
    counts = [len(jax.tree.leaves(arg)) for arg in call.args]
    is_one_each = len(wanted) == len(counts) > 1
    return tuple(one for one, n in zip(wanted, counts, strict=True) for _ in range(n)) if is_one_each else wanted
