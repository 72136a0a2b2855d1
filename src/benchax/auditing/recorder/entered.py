"""The functions of a program that send eager operations: what could be jitted as a whole.

Such a function sends many operations in each of many calls, and jit can take it unchanged. It calls nothing that is
jitted, does not branch on a value that it has read, and stores nothing outside itself. If functions call one another,
the outermost one counts. The exception is a function that does little more than call another one in a long loop.
"""

from __future__ import annotations

import dis
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import CodeType

from benchax.auditing.recorder.log import CallSite, Event, Log
from benchax.source_files import owner_of
from benchax.watching.frames import place

OFTEN = 5
"""Calls of a function: then it is called in a loop."""
LEAST_EACH, MOST_EACH = 10, 5000
"""Operations in each call. Fewer are named by their lines; a program of more would take minutes to compile."""
NEARLY_ALL, LONG_LOOP = 0.8, 20
"""A function that sends this share of another one's operations, and is called this often by each call of it."""
MANY_IN_PACKAGE = 1000
"""Operations of your function that a package calls: fewer it may send to find out what the function is like."""
MAKES_OBJECTS = ("__init__", "__new__", "__post_init__", "setup")
"""Methods that may store attributes: of a new object."""


@dataclass
class EagerFunction:
    """A function that is called at one place, and sends operations."""

    site: CallSite
    calls: set[int] = field(default_factory=set[int])
    """Positions in `Log.entered`."""
    lines: Counter[str] = field(default_factory=Counter[str])
    """Operations by line."""
    jitted: int = 0
    """Calls of jitted functions inside of it."""
    reads: list[str] = field(default_factory=list[str])
    """Lines inside of it that read a value."""
    acts_on_values: bool = False
    """It sends operations after it has read a value, and they can depend on that value."""

    @property
    def operations(self) -> int:
        return self.lines.total()

    @property
    def each(self) -> int:
        """Operations in each call."""
        return round(self.operations / max(1, len(self.calls)))

    @property
    def where(self) -> str:
        """The place that calls it."""
        positions = list(self.site.code.co_positions())
        at = self.site.instruction // 2
        line = positions[at][0] if at < len(positions) else None
        return place(self.site.code.co_filename, line or self.site.code.co_firstlineno)

    @property
    def span(self) -> tuple[int, int, int, int]:
        """First and last line, first and last column of the call; zeros if Python does not tell."""
        positions = list(self.site.code.co_positions())
        at = self.site.instruction // 2
        first, last, begin, end = positions[at] if at < len(positions) else (0, 0, 0, 0)
        return first or 0, last or 0, begin or 0, end or 0

    @property
    def name(self) -> str:
        return self.site.callee.co_qualname.replace("<locals>.", "")

    @property
    def defined(self) -> str:
        return place(self.site.callee.co_filename, self.site.callee.co_firstlineno)

    @property
    def is_users(self) -> bool:
        return owner_of(self.site.callee.co_filename) == "user"

    @property
    def stores(self) -> bool:
        """Does it store attributes or global variables, which a jitted function must not?"""
        code = self.site.callee
        return self.is_users and code.co_name not in MAKES_OBJECTS and _stores(code)


@cache
def _stores(code: CodeType) -> bool:
    return any(step.opname in ("STORE_ATTR", "STORE_GLOBAL") for step in dis.get_instructions(code))


def functions_to_jit(log: Log, operations: Sequence[Event], least: int) -> list[EagerFunction]:
    """Functions that send at least this many operations, most first."""
    found = _entered(log, operations)
    storing = _storing(log, found, operations)
    able = {site for site, one in found.items() if _is_able(one, least) and site not in storing}
    chosen: dict[CallSite, EagerFunction] = {}
    loops = {
        outer
        for path in {_sites(log, event) for event in operations}
        for i, outer in enumerate(path)
        for inner in path[i + 1 :]
        if inner in able and _is_loop_over(found[outer], found[inner])
    }
    for event in operations:
        site = next((one for one in _sites(log, event) if one in able and one not in loops), None)
        if site is not None:
            one = chosen.setdefault(site, EagerFunction(site, found[site].calls, reads=found[site].reads))
            one.lines[event.where] += 1
    return sorted((one for one in chosen.values() if one.operations >= least), key=lambda one: -one.operations)


def _sites(log: Log, event: Event) -> tuple[CallSite, ...]:
    return tuple(dict.fromkeys(log.entered[entry] for entry in event.path))


def _entered(log: Log, operations: Iterable[Event]) -> Mapping[CallSite, EagerFunction]:
    found: dict[CallSite, EagerFunction] = {}
    counted, read_by = set(map(id, operations)), defaultdict[int, str](str)
    for event in log.of("operation", "call", "read", "wait"):
        for entry in event.path:
            site = log.entered[entry]
            one = found.setdefault(site, EagerFunction(site))
            if event.kind == "call":
                one.jitted += event.caller != "package"
            elif event.kind != "operation":
                read_by[entry] = event.where
                one.reads.append(event.where)
            elif id(event) in counted:
                one.calls.add(entry)
                one.acts_on_values |= entry in read_by
        if event.kind == "operation" and id(event) in counted:
            for site in _sites(log, event):
                found[site].lines[event.where] += 1
    return found


def _storing(log: Log, found: Mapping[CallSite, EagerFunction], operations: Iterable[Event]) -> set[CallSite]:
    """Functions that store, or call one that does."""
    storing = set[CallSite]()
    for path in {_sites(log, event) for event in operations}:
        last = max((i for i, site in enumerate(path) if found[site].stores), default=-1)
        storing.update(path[: last + 1])
    return storing


def _is_able(one: EagerFunction, least: int) -> bool:
    n = len(one.calls)
    return (
        n >= OFTEN
        and LEAST_EACH <= one.operations / n <= MOST_EACH
        and one.operations >= (MANY_IN_PACKAGE if one.site.is_through_package else least)
        and not (one.jitted or one.acts_on_values)
    )


def _is_loop_over(outer: EagerFunction, inner: EagerFunction) -> bool:
    is_long = len(inner.calls) >= LONG_LOOP * len(outer.calls)
    return is_long and inner.operations >= NEARLY_ALL * outer.operations
