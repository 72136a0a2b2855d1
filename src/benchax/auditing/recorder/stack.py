"""One walk over the stack of a call: the line of your code, who makes the call, and the calls that it is inside of.

How often a call site is entered is counted by a mark in the frame that it enters, which goes with the frame. Under a
debugger, which marks frames itself, entered calls are not seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import FrameType

from benchax.auditing.recorder.log import Caller, CallSite, Log
from benchax.source_files import owner_of
from benchax.watching.frames import is_wrapper, place

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
