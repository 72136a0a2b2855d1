"""The log of a run: one event for each thing that a program does with JAX, and the identity of its arrays.

Rules ask questions of the log when the program has ended (`views.py`). Arrays are known by a serial number, held by
weak references alone: the log keeps nothing of the program alive. This is the one place that tells arrays apart.

How often a call site is entered is counted by a mark in the frame that it enters, which goes with the frame. Under a
debugger, which marks frames itself, entered calls are not seen.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any, Literal, NamedTuple, TypeVar

import jax
import numpy as np

from benchax.source_files import owner_of
from benchax.watching.frames import is_wrapper, place

Kind = Literal[
    "window", "call", "operation", "read", "put", "list", "wide", "rounded", "wait", "draw", "setting", "sample",
    "stale",
]  # fmt: skip
T = TypeVar("T")
K = TypeVar("K")
Caller = Literal["user", "package", "handed"]
MOST_EVENTS = 200_000
"""Events of one kind that are kept, about 50 MB. Later ones are counted only."""
MOST_IDS = 5_000_000
"""Arguments and results that are kept of all events together."""


@dataclass(slots=True, eq=False)
class Event:
    """One thing that happened."""

    kind: Kind
    by: str
    """The function, operation, or setting."""
    where: str
    """file:line of the user's code; empty outside of it."""
    at: float = 0.0
    """When it began, in seconds of `watching.transfers.clock`."""
    ended: float = 0.0
    function: int = 0
    """Serial number of the jitted function."""
    reads: tuple[int, ...] = ()
    """Serial numbers of the arguments, flat. 0: unknown, and equal to nothing."""
    makes: tuple[int, ...] = ()
    """Serial numbers of the results."""
    size: int = 0
    """Bytes, or numbers of a list."""
    caller: Caller = "user"
    """Who made the call: your code, a package by itself, or a package that calls a function of yours."""
    path: tuple[int, ...] = ()
    """The calls in your code that were running, outermost first: positions in `Log.entered`."""
    note: Any = None
    """A fact that only this kind of event has."""
    thread: int = field(default_factory=threading.get_ident)

    @property
    def elapsed_s(self) -> float:
        return self.ended - self.at


class ArrayFacts(NamedTuple):
    """Facts that stay the same for the life of an array."""

    size_bytes: int
    sharding: Any
    """None for NumPy arrays."""


class CallSite(NamedTuple):
    """A place in your code that calls something."""

    code: CodeType
    instruction: int
    callee: CodeType
    is_through_package: bool
    """A package calls the function, which it was given."""


class FunctionFacts(NamedTuple):
    """A jitted function, as its calls show it."""

    name: str
    defined: str
    """file:line of its `def`; empty if unknown."""
    names: tuple[str, ...]
    """The names of its arguments, flat: params['w'], batch[0]."""
    shardings: tuple[Any, ...] = ()
    """The shardings of `in_shardings`, one for each argument or for all."""


NO_ARRAY = ArrayFacts(8, None)


class Log:
    """Everything that was seen, in order."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.counts: Counter[Kind] = Counter()
        """The number of events of each kind, also of those that are not kept."""
        self.arrays: dict[int, ArrayFacts] = {}
        self.died: dict[int, int] = {}
        """How many events there were when an array was deleted."""
        self.functions: dict[int, FunctionFacts] = {}
        self.entered: list[CallSite] = []
        """One entry for each time that a call site was entered."""
        self.seen_s = 0.0
        """How long calls were watched."""
        self._serial = 0
        self._ids = 0
        self._known: dict[int, tuple[int, weakref.ref[Any]]] = {}
        self._numbers: dict[tuple[type, Any], int] = {}
        self._types: dict[type, str] = {}
        self._functions: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    def add(self, event: Event) -> Event:
        self.counts[event.kind] += 1
        if self.counts[event.kind] <= MOST_EVENTS:
            self.events.append(event)
        return event

    def of(self, *kinds: Kind) -> Iterator[Event]:
        return (event for event in self.events if event.kind in kinds)

    def ids(self, leaves: Iterable[Any]) -> tuple[int, ...]:
        """Serial numbers of arrays and Python numbers: equal for the same object, and for equal numbers."""
        if self._ids > MOST_IDS:
            return ()
        found: list[int] = []
        for leaf in leaves:
            # Most arrays are known, as the results of another call: a state may have thousands.
            known = self._known.get(id(leaf))
            found.append(known[0] if known is not None and known[1]() is leaf else self._id(leaf))
        self._ids += len(found)
        return tuple(found)

    def function(self, fun: Any) -> int:
        """The serial number of a function; 0 if it has neither hash nor weak references."""
        try:
            known = self._functions.get(fun)
            if known is None:
                known = self._functions[fun] = self._next()
        except TypeError:  # no hash, or no weak references
            return 0
        return known

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    def _id(self, leaf: Any) -> int:
        # `isinstance` of an array takes longer than all the rest.
        kind = self._types.get(type(leaf))
        if kind is None:
            is_array = isinstance(leaf, jax.Array | np.ndarray)
            kind = self._types[type(leaf)] = "array" if is_array else "number" if isinstance(leaf, int | float) else ""
        if kind == "array":
            return self._array(leaf)
        return (self._numbers.get((type(leaf), leaf)) or self._number(leaf)) if kind == "number" else 0

    def _number(self, leaf: Any) -> int:
        self._numbers[type(leaf), leaf] = found = self._next()
        self.arrays[found] = NO_ARRAY
        return found

    def _array(self, leaf: Any) -> int:
        key, serial = id(leaf), self._next()

        def forget(reference: weakref.ref[Any]) -> None:
            self.died[serial] = len(self.events)
            if self._known.get(key, (0,))[0] == serial:
                del self._known[key]

        try:
            self._known[key] = serial, weakref.ref(leaf, forget)
        except TypeError:  # tracers of some kinds
            return 0
        self.arrays[serial] = ArrayFacts(leaf.nbytes, getattr(leaf, "sharding", None))
        return serial


def grouped(items: Iterable[T], key: Callable[[T], K]) -> dict[K, list[T]]:
    """Items in groups of equal keys, in order."""
    found: dict[K, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def most_common(texts: Sequence[str]) -> str:
    """The text that occurs most often; empty without any text."""
    return Counter(filter(None, texts)).most_common(1)[0][0] if any(texts) else ""


IN_ONE_FUNCTION = ("<module>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")
"""Code that belongs to the function around it."""


@dataclass(slots=True)
class CallStack:
    """The results of one walk."""

    where: str = ""
    caller: Caller = "user"
    path: tuple[int, ...] = ()
    is_indexing: bool = False
    """x[i]"""
    instruction: int = -1
    """The instruction of the line in your code, which can make several calls."""


class _Mark:
    """Marks a frame that a log has seen. Python calls it only if a debugger starts inside that frame."""

    __slots__ = ("entry", "log")

    def __init__(self, entry: int, log: Log) -> None:
        self.entry, self.log = entry, log

    def __call__(self, *_: object) -> None:
        return None


def look(frame: FrameType | None, log: Log) -> CallStack:
    """Walks from `frame` outward."""
    found = CallStack()
    entries: list[int] = []
    last_jax = package = ""
    entered: FrameType | None = None  # the next frame inward: yours or a package's
    users: FrameType | None = None  # the next frame inward that is yours
    nearest_owner = handing_owner = ""
    while frame is not None:
        code = frame.f_code
        owner = owner_of(code.co_filename)
        if owner == "user":
            if users is None:
                found.where, found.instruction = place(code.co_filename, frame.f_lineno), frame.f_lasti
                nearest_owner = nearest_owner or owner
            elif not handing_owner:
                handing_owner = owner
            for inner in [users] if entered is None or entered is users else [users, entered]:
                if inner is not None and (entry := _enter(frame, inner, inner is not entered, log)) is not None:
                    entries.append(entry)
            users = entered = frame
        elif owner == "package":
            if users is None and is_wrapper(code):
                nearest_owner = "user"
            package = package or place(code.co_filename, frame.f_lineno)
            nearest_owner = nearest_owner or owner
            handing_owner = handing_owner or (owner if users is not None else "")
            entered = frame
        elif not nearest_owner:
            last_jax = code.co_name if owner in ("jax", "benchax") else last_jax
        frame = frame.f_back
    found.where = found.where or package
    found.is_indexing = last_jax == "__getitem__"
    found.path = tuple(reversed(entries))
    if nearest_owner == "package":
        found.caller = "package"
    elif handing_owner == "package":
        found.caller = "handed"
    return found


def _enter(frame: FrameType, inner: FrameType, is_through_package: bool, log: Log) -> int | None:
    mark = inner.f_trace
    if isinstance(mark, _Mark) and mark.log is log:
        return mark.entry
    if not isinstance(mark, _Mark | None) or inner.f_code.co_name in IN_ONE_FUNCTION:
        return None
    log.entered.append(CallSite(frame.f_code, frame.f_lasti, inner.f_code, is_through_package))
    inner.f_trace = _Mark(len(log.entered) - 1, log)
    return len(log.entered) - 1
