"""Notes under which calls of the user's functions eager operations are sent: what could be jitted as a whole.

A call is a place in the user's code and the code that it enters: the user's own, or a package's. An operation counts
for every call that is on the stack when it is sent. How often each was entered is counted by a mark in its frame, which
goes with the frame: nothing of the user's is held. Under a debugger, which marks frames itself, no calls are counted.
"""

from __future__ import annotations

import dis
from collections import Counter
from dataclasses import dataclass
from functools import cache
from types import CodeType, FrameType
from typing import Any, NamedTuple

from benchax.source_files import owner_of
from benchax.watching.frames import place

MOST_CALLS, MOST_PATHS = 1000, 5000
"""So many are told apart; programs have less."""
IN_ONE_FUNCTION = ("<module>", "<listcomp>", "<genexpr>", "<dictcomp>", "<setcomp>")
"""Code that belongs to the function around it."""
MAKES_OBJECTS = ("__init__", "__new__", "__post_init__", "setup")
"""Methods that may store attributes: of an object that is new."""


@dataclass
class EagerCall:
    """A place in the user's code, and what is called there."""

    where: str
    """file:line of the place."""
    span: tuple[int, int, int, int]
    """First and last line, first and last column of the call; zeros where Python does not tell."""
    function: str
    defined: str
    """file:line of its code."""
    is_users: bool
    is_through_package: bool
    """It is a package that calls the user's function, which it was given."""
    stores: bool
    """It stores attributes or global variables, which a jitted function must not."""
    count: int = 0
    jitted: int = 0
    """Calls of jitted functions by the user's lines below it."""
    reads: int = 0
    """Values that are read below it."""
    read_at: str = ""
    acts_on_values: bool = False
    """It goes on sending operations after it has read a value: what it does may depend on that."""
    has_read: bool = False
    """Since it was entered last."""


class _Entered(NamedTuple):
    """One call on the stack."""

    number: int
    call: EagerCall
    frame: FrameType
    """That it has entered."""


class EagerCalls:
    """All that were seen so far."""

    def __init__(self) -> None:
        self.calls: list[EagerCall] = []
        self.paths: Counter[tuple[tuple[int, ...], str | None]] = Counter()
        """Operations, by the calls that they were sent under, outermost first, and the user's line."""
        self._numbers: dict[tuple[CodeType, int, CodeType], int] = {}

    def note_operation(self, frame: FrameType | None, where: str | None) -> None:
        stack = self._calls_on(frame)
        for _, call, entered in stack:
            if entered.f_trace is None:
                entered.f_trace = _mark
                call.count += 1
                call.has_read = False
            call.acts_on_values |= call.has_read
        path = tuple(dict.fromkeys(number for number, *_ in stack)), where
        if path in self.paths or len(self.paths) < MOST_PATHS:
            self.paths[path] += 1

    def note_jitted(self, frame: FrameType | None) -> None:
        for _, call, _ in self._calls_on(frame):
            call.jitted += 1

    def note_read(self, frame: FrameType | None, where: str | None) -> None:
        for _, call, entered in self._calls_on(frame):
            call.reads += 1
            call.read_at = where or ""
            call.has_read = entered.f_trace is _mark

    def clear(self) -> None:
        """Forgets operations; the calls keep their numbers."""
        self.paths.clear()
        for call in self.calls:
            call.count = call.jitted = call.reads = 0
            call.acts_on_values = call.has_read = False

    def asdict(self) -> dict[str, Any]:
        return {
            "calls": [
                {
                    "where": one.where, "span": one.span, "function": one.function, "defined": one.defined,
                    "is_users": one.is_users, "is_through_package": one.is_through_package, "stores": one.stores,
                    "count": one.count, "jitted": one.jitted, "reads": one.reads, "read_at": one.read_at,
                    "acts_on_values": one.acts_on_values,
                }
                for one in self.calls
            ],
            "paths": [[list(path), where, n] for (path, where), n in self.paths.most_common()],
        }  # fmt: skip

    def _calls_on(self, frame: FrameType | None) -> list[_Entered]:
        """Outermost first."""
        found: list[_Entered] = []
        entered: FrameType | None = None  # by the next frame: the user's or a package's
        users: FrameType | None = None  # the user's that was entered last
        while frame is not None:
            owner = owner_of(frame.f_code.co_filename)
            if owner == "user":
                inner = [users] if entered is None or entered is users else [users, entered]
                found += [one for each in inner if each and (one := self._call(frame, each, each is not entered))]
                users = entered = frame
            elif owner == "package":
                entered = frame
            frame = frame.f_back
        return found[::-1]

    def _call(self, frame: FrameType, entered: FrameType, is_through_package: bool) -> _Entered | None:
        code = entered.f_code
        if code.co_name in IN_ONE_FUNCTION:
            return None
        key = (frame.f_code, frame.f_lasti, code)
        number = self._numbers.get(key)
        if number is None:
            if len(self.calls) >= MOST_CALLS:
                return None
            number = self._numbers[key] = len(self.calls)
            self.calls.append(_describe(frame, code, is_through_package))
        return _Entered(number, self.calls[number], entered)


def _describe(frame: FrameType, code: CodeType, is_through_package: bool) -> EagerCall:
    return EagerCall(
        place(frame.f_code.co_filename, frame.f_lineno),
        _span(frame.f_code, frame.f_lasti),
        code.co_qualname.replace("<locals>.", ""),
        place(code.co_filename, code.co_firstlineno),
        owner_of(code.co_filename) == "user",
        is_through_package,
        code.co_name not in MAKES_OBJECTS and _stores(code),
    )


def _span(code: CodeType, at: int) -> tuple[int, int, int, int]:
    positions = list(code.co_positions())
    found = positions[at // 2] if 0 <= at // 2 < len(positions) else (None,)
    first, last, begin, end = (x or 0 for x in found) if len(found) == 4 else (0, 0, 0, 0)
    return first, last, begin, end


@cache
def _stores(code: CodeType) -> bool:
    return any(step.opname in ("STORE_ATTR", "STORE_GLOBAL") for step in dis.get_instructions(code))


def _mark(*_: object) -> None:
    """Stands in a frame that was seen. Python calls it only where a debugger begins in the midst of that frame, and
    None is what it wants to hear then."""
