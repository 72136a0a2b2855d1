"""Counts what a program calls, for a while from its first call on, and for a short while again and again after that."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from time import perf_counter
from types import FrameType
from typing import Any

from benchax.auditing.argument_lifetimes import ArgumentLifetimes
from benchax.auditing.call_notes import CallNotes, name_of
from benchax.auditing.eager_arrays import EagerArrays
from benchax.auditing.eager_calls import EagerCalls
from benchax.auditing.fed_back import FedBack
from benchax.auditing.host_work import HostWork
from benchax.auditing.lost_digits import LostDigitsNotes
from benchax.auditing.nan_calls import NanCalls
from benchax.auditing.shared_calls import SharedCalls
from benchax.auditing.stale_values import StaleValues
from benchax.auditing.wait_notes import WaitNotes
from benchax.results.transfers import ObservedTransfer, Transfers
from benchax.source_files import is_called_by_package, is_in_package, owner_of
from benchax.watching.frames import JaxCall, calling, is_of_jax
from benchax.watching.transfers import clock, watch_transfers

MOST_LINES = 10
OUTSIDE = ("stage", "fold_in", "split")
"""Parts of the names of eager operations that have their place outside of a program: what jnp.asarray sends, and a new
random key for each step."""
FIRST_SHARE, LATER_SHARE, PAUSE_SHARE = 0.5, 0.05, 0.5
"""Of the time for which calls are counted: the first window, those that follow, and the pauses between them. A later
window is a tenth of the pause before it, so that a long run is slowed by a few percent."""
LEAST_PAUSE_S = 5.0
ENOUGH = {"jitted": 2000, "eager": 5000, "read": 20_000}
"""A window stays open until it has seen so many calls of one kind, or reads: where all of it went into compiling, as
the first one of a program often does, few were counted. Seeing so many takes a second; calls that are few take long."""
LOOK_AGAIN_S = 0.2


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
        self.fed_back = FedBack()
        self.notes = CallNotes()
        self.eager_calls = EagerCalls()
        self.eager_arrays = EagerArrays()
        self.stale = StaleValues()
        self.shared = SharedCalls()
        self.reads = WaitNotes()
        self.nans = NanCalls()
        self.lost = LostDigitsNotes()
        self.host_work = HostWork()
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
        self.reads.forget_last()
        self.fed_back.forget_last()
        found = self.block.enter_context(watch_transfers(self.on_call, self.on_result, self.on_transfer))
        self.block.callback(self._take, found)
        self.host_work.open()
        self.block.callback(self.host_work.close)

    def _take(self, found: Transfers) -> None:
        """What a window has seen, when it is closed."""
        for transfer in found.found.values():
            self.transfers.add(transfer)
        self.transfers.sees = found.sees
        self.transfers.remarks = found.remarks

    def on_call(self, fun: Any, leaves: Sequence[Any]) -> None:
        is_eager = is_of_jax(fun)
        call = calling(frozenset())
        if not is_eager:
            self.reads.note_call()
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
                self.host_work.note_call(call.where)
                self.lifetimes.note_call(fun, leaves)
                self.fed_back.note_call(fun, leaves)
                self.stale.note_call(fun)
                self.shared.note_call(fun, leaves, call.where)
                self.nans.note_call(fun)
                # What a package has jitted is a part of it, and can be called under another jit.
                if not is_packages:
                    self.eager_calls.note_jitted(frame)
            elif not any(word in getattr(fun, "__name__", "") for word in OUTSIDE):
                is_indexing = _is_indexing(frame)
                self.eager_arrays.note(getattr(fun, "__name__", ""), leaves, call.where, is_indexing=is_indexing)
                if not is_indexing:
                    self._count_eager(frame, call.where, is_packages=is_packages)
            is_handed = is_called_by_package(frame)
            self.notes.note_call(fun, leaves, call, is_packages=is_packages, is_handed=is_handed)
            self.lost.note_call(leaves, call.where)

    def _count_eager(self, frame: FrameType, where: str | None, *, is_packages: bool) -> None:
        self.eager[where] += 1
        self.eager_inside[where] += is_packages
        self.eager_calls.note_operation(frame, where)

    def on_result(self, fun: Any, leaves: Sequence[Any], results: Sequence[Any]) -> None:
        with self.lock:
            self.notes.note_result(fun, leaves, results)
            self.shared.note_result(fun, results)
            self.fed_back.note_result(fun, results)
            self.nans.note_result(fun, results)

    def on_transfer(self, transfer: ObservedTransfer) -> None:
        if transfer.direction == "device to host":
            self.on_read(transfer.where)
            if transfer.elapsed_s is not None and transfer.where is not None:
                now = clock()
                self.reads.note(transfer.by, now - transfer.elapsed_s, now, transfer.where)

    def on_read(self, where: str | None) -> None:
        """A value was read back, at this line of the user's."""
        with self.lock:
            self.in_window["read"] += 1
            if self.opened is not None:
                self.eager_calls.note_read(sys._getframe(1), where)

    def note_compile(self, call: JaxCall, jaxpr: Any) -> None:
        with self.lock:
            self.stale.note_compile(call)
            self.shared.note_compile(call.fun, name_of(call), jaxpr)

    def _count_call(self, where: str | None) -> None:
        # What came before the first call has set the program up, each line once, however many operations it sent.
        if not self.jitted:
            self.eager.clear()
            self.eager_inside.clear()
            self.eager_calls.clear()
            self.eager_arrays.clear()
        self.jitted[where] += 1

    def _after(self, wait_s: float, then: Callable[[], None]) -> None:
        if self.is_closed:
            return
        self.timer = threading.Timer(wait_s, then)
        self.timer.daemon = True
        self.timer.start()

    def _pause(self) -> None:
        if all(self.in_window[kind] < enough for kind, enough in ENOUGH.items()):
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
            "reads": self.reads.asdict(),
        }


def _is_indexing(frame: FrameType | None) -> bool:
    """Does the line that sends an operation take a part of an array, x[i]? Some operations do that, and batches are
    chosen so between the calls of a step."""
    name = ""
    while frame is not None and owner_of(frame.f_code.co_filename) in ("jax", "benchax"):
        name, frame = frame.f_code.co_name, frame.f_back
    return name == "__getitem__"
