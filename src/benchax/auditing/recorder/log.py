"""The log of a run: one event for each thing that a program does with JAX, and the identity of its arrays.

Rules ask questions of the log when the program has ended. Arrays are known by a serial number, held by
weak references alone: the log keeps nothing of the program alive. This is the one place that tells arrays apart.

How often a call site is entered is counted by a mark in the frame that it enters, which goes with the frame. Under a
debugger, which marks frames itself, entered calls are not seen.
"""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
from itertools import pairwise
from types import CodeType, FrameType
from typing import Any, Literal, NamedTuple, TypeVar

from benchax.grouping import group_by
from benchax.source_files import owner_of
from benchax.watching.frames import is_wrapper, place

Kind = Literal[
    "window", "call", "operation", "read", "put", "list", "wide", "rounded", "wait", "draw", "setting", "sample",
    "stale",
]  # fmt: skip
T = TypeVar("T")
Caller = Literal["user", "package", "handed"]
MOST_EVENTS = 200_000
"""Events of one kind that are kept, about 50 MB. Later ones are counted only."""
MOST_IDS = 5_000_000
"""Arguments and results that are kept of all events together: 40 MB of references."""


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
    line: int
    callee: CodeType
    is_through_package: bool
    """A package calls the function, which it was given."""

    @property
    def where(self) -> str:
        return place(self.code.co_filename, self.line)

    @property
    def defined(self) -> str:
        """The line of the function, or of its first decorator."""
        return place(self.callee.co_filename, self.callee.co_firstlineno)


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
            # Most arrays are known already as results of another call, and a state can have thousands.
            known = self._known.get(id(leaf))
            found.append(known[0] if known is not None and known[1]() is leaf else self._id(leaf))
        self._ids += len(found)
        return tuple(found)

    def lines_of(self, *kinds: Kind) -> set[str]:
        """All lines of your code that were running at such events."""
        events = list(self.of(*kinds))
        sites = {self.entered[entry] for event in events for entry in event.path}
        return {one.where for one in (*events, *sites)}

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
        if isinstance(leaf, int | float):
            key = type(leaf), leaf
            if key not in self._numbers:
                self._numbers[key] = self._next()
                self.arrays[self._numbers[key]] = NO_ARRAY
            return self._numbers[key]
        place, serial = id(leaf), self._next()

        def forget(reference: weakref.ref[Any]) -> None:
            self.died[serial] = len(self.events)
            if self._known.get(place, (0,))[0] == serial:
                del self._known[place]

        try:
            self.arrays[serial] = ArrayFacts(leaf.nbytes, getattr(leaf, "sharding", None))
            self._known[place] = serial, weakref.ref(leaf, forget)
        except (AttributeError, TypeError):  # neither an array nor a number, or without weak references
            return 0
        return serial


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
    called: str = ""
    """The function of JAX that your line calls: "fold_in", or "__getitem__" for x[i]."""
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
    package = ""
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
        elif not nearest_owner and owner == "jax":
            found.called = code.co_name
        frame = frame.f_back
    found.where = found.where or package
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
    log.entered.append(CallSite(frame.f_code, frame.f_lineno, inner.f_code, is_through_package))
    inner.f_trace = _Mark(len(log.entered) - 1, log)
    return len(log.entered) - 1


# ---- questions -------------------------------------------------------------------------------------------------------
#
# What stays the same from call to call, what comes back, what needs what, what waits.


WARM_UP = 2
"""Waits of a line that are not timed: the program can still be compiling its steps. With half or twice of it, rules
find the same in the clean programs and the programs of wait-per-step and implicit-transfers."""
NO_STEP = 0.03
"""Two waits at a line with less than this share of the first wait between them are one wait: no step is that short.
With half or twice of it, rules find the same in the same programs."""
READ_S = 2e-5
"""A value that is there already is read in 2 to 6 µs on a core of a cloud machine, while reads are watched."""


# ---- calls ------------------------------------------------------------------------------------------------------


@dataclass
class CallLine:
    """Calls of one function from one line."""

    log: Log
    function: int
    where: str
    events: Sequence[Event]
    depths: Sequence[tuple[int, int]]
    """How many calls in a row the arguments of each came from: calls of any function, and of the same one."""

    @property
    def name(self) -> str:
        return self.events[0].by

    @property
    def count(self) -> int:
        return len(self.events)

    @property
    def by_package(self) -> int:
        """Calls that a package makes by itself."""
        return sum(event.caller == "package" for event in self.events)

    @property
    def handed(self) -> int:
        """Calls by a function of yours that a package calls."""
        return sum(event.caller == "handed" for event in self.events)

    @property
    def is_in_turn(self) -> bool:
        """Do most calls need the result of another call?"""
        return self.in_turn > 1 and self.count < 8 * self.in_turn

    @cached_property
    def in_turn(self) -> int:
        """How many calls could not start before another call had returned: the longest chain, or the number of levels.

        A model that is evaluated after each step has as many levels as there are steps.
        """
        levels, rows = zip(*self.depths, strict=True)
        return max(max(rows) + 1, len(set(levels)))

    @cached_property
    def fresh_bytes(self) -> int:
        """The largest total of arguments that differ from the call before."""
        fresh = (set(new.reads) - (set(old.reads) - {0}) for old, new in pairwise(self.events))
        return max((sum(self.log.arrays.get(one, NO_ARRAY).size_bytes for one in each) for each in fresh), default=0)

    @cached_property
    def numpy(self) -> list[tuple[str, int, int]]:
        """NumPy arrays among the arguments: (name, how often, how often the same object as in the call before)."""
        found: list[tuple[str, int, int]] = []
        names = self.log.functions[self.function].names
        for i, name in enumerate(names):
            ids = [event.reads[i] for event in self.events if i < len(event.reads)]
            known = [(one, self.log.arrays.get(one, NO_ARRAY)) for one in ids]
            given = [one for one, facts in known if facts is not NO_ARRAY and facts.sharding is None]
            if given:
                found.append((name, len(given), sum(a == b for a, b in pairwise(given))))
        return found


def call_lines(log: Log) -> list[CallLine]:
    """The line that calls most often first."""
    depths = _depths(log)
    groups = group_by(log.of("call"), lambda event: (event.function, event.where))
    lines = [CallLine(log, f, at, events, [depths[id(one)] for one in events]) for (f, at), events in groups.items()]
    return sorted((line for line in lines if line.function), key=lambda line: -line.count)


def _depths(log: Log) -> dict[int, tuple[int, int]]:
    """By the `id` of each call: how many calls in a row its arguments came from, of any function and of the same
    one."""
    behind: dict[int, Mapping[int, int]] = {}
    depths = dict[int, tuple[int, int]]()
    for event in log.of("call", "operation"):
        sources = {id(one): one for serial in event.reads if (one := behind.get(serial))}.values()
        found = dict[int, int]()
        for function, n in (pair for source in sources for pair in source.items()):
            found[function] = max(n, found.get(function, 0))
        if event.kind == "call":
            own = found.get(event.function, 0)
            depths[id(event)] = max(found.values(), default=0), own
            found[event.function] = own + 1
        # A result that is also an argument, such as weights that flax.nnx returns, does not come from this call.
        given = set(event.reads)
        behind.update(dict.fromkeys((one for one in event.makes if one and one not in given), found) if found else {})
    return depths


def pairs_of(log: Log, function: int) -> Iterator[tuple[Event, Event, int]]:
    """Each call of a function and the next one, with the position of the next one in the log; not across a pause."""
    last: Event | None = None
    for i, event in enumerate(log.events):
        if event.kind == "window":
            last = None
        elif event.kind == "call" and event.function == function:
            if last is not None and len(last.reads) == len(event.reads):
                yield last, event, i
            last = event


class Carried(NamedTuple):
    """The results of a function that are its arguments at each next call, as the carry of a loop is."""

    calls: int = 0
    positions: tuple[tuple[int, int], ...] = ()
    """(argument, result), flat."""


NOTHING_CARRIED = Carried()


@dataclass(frozen=True)
class FunctionUse:
    """How a program uses one function. Empty for a function that no program was seen to call."""

    held: frozenset[int] = frozenset()
    """Arguments, flat, that the program still had at each next call: it could not have donated them."""
    repeated: frozenset[int] = frozenset()
    """Arguments that were the same object or number at each of three calls or more."""
    carried: Carried = NOTHING_CARRIED
    called_at: str = ""
    """The line that calls it most often."""
    wide_lines: Mapping[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    """Lines of the program that make float64 arrays without asking for them, by what they make."""


def use_of(log: Log, function: int) -> FunctionUse:
    pairs = list(pairs_of(log, function))
    held = _common({i for i, one in enumerate(old.reads) if _is_alive(log, one, at)} for old, _, at in pairs)
    repeated = _common(
        {i for i, (a, b) in enumerate(zip(old.reads, new.reads, strict=True)) if a == b != 0} for old, new, _ in pairs
    )
    carried = _common(_carried(old, new) for old, new, _ in pairs)
    wide = group_by(log.of("wide"), lambda event: event.by)
    return FunctionUse(
        frozenset(held),
        frozenset(repeated) if len(pairs) > 1 else frozenset(),
        Carried(len(pairs), tuple(sorted(carried))),
        most_common([event.where for event in log.of("call") if event.function == function]),
        {spec: tuple(sorted({event.where for event in one})) for spec, one in wide.items()},
    )


def _carried(old: Event, new: Event) -> set[tuple[int, int]]:
    made = {one: j for j, one in enumerate(old.makes) if one}
    return {(i, made[one]) for i, one in enumerate(new.reads) if one in made}


def _common(sets: Iterator[set[T]]) -> set[T]:
    """The elements that all sets have; empty without any set."""
    return reduce(set.intersection, sets, next(sets, set()))


def _is_alive(log: Log, serial: int, at: int) -> bool:
    is_array = log.arrays.get(serial, NO_ARRAY).sharding is not None  # NumPy arrays are never taken over
    return is_array and log.died.get(serial, at + 1) > at


# ---- waits ------------------------------------------------------------------------------------------------------


@dataclass
class WaitLine:
    """A line that waits for the device."""

    where: str
    by: str
    count: int = 0
    waited_s: float = 0.0
    steps: int = 0
    """Waits after `WARM_UP` that follow another one at this line. The rest is about these."""
    between_s: float = 0.0
    """The time of the host after each wait, until the next one of its thread at any line."""
    gain_s: float = 0.0
    """The shorter one of each wait and the work of the host after it: no more than that can overlap."""
    stepped_s: float = 0.0
    """From the end of each wait to the end of the next at this line."""
    ended: dict[int, float] = field(default_factory=dict[int, float], repr=False)


@dataclass
class _LastWait:
    line: WaitLine
    waited_s: float
    ended: float
    is_followed: bool = False
    """Has a call been made since?"""


def wait_lines(log: Log, kind: Any) -> list[WaitLine]:
    """Lines that wait by name ("wait"), or that read values ("read"); the one that could gain most first.

    Only reads come with the calls between them, for both are seen in the same windows.
    """
    lines: dict[tuple[str, str], WaitLine] = {}
    last: dict[int, _LastWait] = {}
    for event in log.of(kind, "call", "window"):
        before = last.get(event.thread)
        if event.kind == "window":
            # Without a recorded call there is no step.
            last.clear()
            for line in lines.values():
                line.ended.clear()
        elif event.kind == "call":
            if before is not None:
                before.is_followed = True
        elif event.where:
            line = lines.setdefault((event.where, event.by), WaitLine(event.where, event.by))
            _add_wait(line, event, before, last, is_with_calls=kind == "read")
    return sorted(lines.values(), key=lambda line: -line.gain_s)


def _add_wait(
    line: WaitLine, event: Event, before: _LastWait | None, last: dict[int, _LastWait], *, is_with_calls: bool
) -> None:
    waited_s, thread = event.elapsed_s, event.thread
    if before is not None and before.line is line:
        is_unfollowed = is_with_calls and not before.is_followed
        if is_unfollowed or event.at - before.ended < NO_STEP * before.waited_s:
            # The next element of the same result.
            before.waited_s += waited_s
            line.waited_s += waited_s
            line.stepped_s += event.ended - before.ended if line.steps else 0.0
            before.ended = line.ended[thread] = event.ended
            return
    line.count += 1
    line.waited_s += waited_s
    if before is not None and before.line is not line and waited_s < min(READ_S, before.waited_s / 2):
        return  # another result of the call that has been waited for, at a line of its own
    if before is not None and before.line.count > WARM_UP:
        before.line.between_s += event.at - before.ended
        before.line.gain_s += min(before.waited_s, event.at - before.ended)
    if thread in line.ended and line.count > WARM_UP + 1:
        line.steps += 1
        line.stepped_s += event.ended - line.ended[thread]
    line.ended[thread] = event.ended
    last[thread] = _LastWait(line, waited_s, event.ended)


# ---- keys -------------------------------------------------------------------------------------------------------


def keys_used_twice(log: Log) -> list[list[Event]]:
    """The uses of each random key that your code uses more than once, outside of jit."""
    groups = group_by(log.of("draw"), lambda event: event.reads)
    uses = [events for reads, events in groups.items() if reads and len(events) > 1]
    return [events for events in uses if not _is_in_one_call_of_package(events)]


def _is_in_one_call_of_package(events: Sequence[Event]) -> bool:
    """No line of yours can change how a package uses a key inside one call that got the key once."""
    # The last entry of a path is the call that your line makes.
    shared = set.intersection(*(set(event.path) for event in events))
    return all(event.caller == "package" for event in events) and any(e.path[-1] in shared for e in events if e.path)


# ---- the host between calls -------------------------------------------------------------------------------------


@dataclass
class HostLine:
    """The time before the calls of one line."""

    where: str
    count: int = 0
    elapsed_s: float = 0.0
    """Since the call before, at whatever line."""
    stacks: Counter[tuple[str, ...]] = field(default_factory=Counter[tuple[str, ...]])
    """Seconds at lines of your code, outermost first."""

    @property
    def host_s(self) -> float:
        return sum(self.stacks.values())


def host_lines(log: Log, main_thread: int | None) -> list[HostLine]:
    lines: dict[str, HostLine] = {}
    waiting: Counter[tuple[str, ...]] = Counter()
    before: float | None = None
    for event in log.of("sample", "call", "window"):
        if event.kind == "sample":
            waiting[event.note[0]] += event.note[1]
        elif event.kind == "window":
            waiting, before = Counter(), None
        elif event.thread == main_thread and event.where:
            line = lines.setdefault(event.where, HostLine(event.where))
            line.count += 1
            # The first call of a line comes after the setup of the program.
            if line.count > 1 and before is not None:
                line.elapsed_s += event.at - before
                line.stacks.update(waiting)
            waiting, before = Counter(), event.at
    return list(lines.values())
