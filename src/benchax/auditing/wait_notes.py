"""Notes where a program waits for the device, and what the host could have done meanwhile.

Told of waits by name by `host_calls.py`, and of reads such as float(x) by `call_counter.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from benchax.watching.frames import user_line

WARM_UP = 2
"""Waits of a line that are counted alone: behind them the program may still be compiling what a step consists of."""
SHARE, SHARE_OF_READS = 0.05, 0.1
"""The share of a step that could be saved at most, for a finding. While reads are seen the host is slower, though the
time that seeing them takes is left out (`watching.transfers.clock`)."""

NO_STEP = 0.03
"""What lies between two waits at a line, as a share of the first: no step does so little, or else its waits could not
be dear."""
READ_S = 2e-5
"""What is there already is read in 2 to 6 µs on a core of a cloud machine, while reads are noted."""


def is_dear(line: Mapping[str, Any], share: float = SHARE) -> bool:
    """Could a line's steps be shorter without its waits, of what `WaitNotes.asdict` gives?"""
    return line["steps"] > 0 and line["gain_s"] >= share * line["stepped_s"]


@dataclass
class WaitLine:
    """A line that waits for the device."""

    where: str
    by: str
    count: int = 0
    waited_s: float = 0.0
    steps: int = 0
    """From one of these waits to the next, without those of `WARM_UP`; of them is all that follows."""
    between_s: float = 0.0
    """From the end of each wait to the beginning of the next one of its thread, at whatever line: what the host did
    meanwhile. Without this wait it could go on until that one, and no further."""
    gain_s: float = 0.0
    """The smaller of each wait and of what the host did before the next: what can run side by side at most."""
    stepped_s: float = 0.0
    """From the end of each wait to the end of the next at this line: the length of its steps."""
    ended: dict[int, float] = field(default_factory=dict[int, float], repr=False)
    """By thread: when it last waited here."""


@dataclass
class _LastWait:
    """Of one thread."""

    line: WaitLine
    waited_s: float
    ended: float
    is_followed: bool = False
    """Has a call been made since?"""

    def go_on(self, begun: float, ended: float) -> None:
        """It reads another array of those that it has waited for."""
        self.waited_s += ended - begun
        self.line.waited_s += ended - begun
        if self.line.steps:
            self.line.stepped_s += ended - self.ended
        self.ended = ended


class WaitNotes:
    """What was seen of all waits so far."""

    def __init__(self) -> None:
        self.waits: dict[tuple[str, str], WaitLine] = {}
        self._last: dict[int, _LastWait] = {}
        self._sees_calls = False
        self._lock = threading.Lock()

    def asdict(self) -> list[dict[str, Any]]:
        with self._lock:
            return [{k: v for k, v in asdict(line).items() if k != "ended"} for line in self.waits.values()]

    def forget_last(self) -> None:
        """Where waits go unseen for a while, what lies between two of them is no step."""
        with self._lock:
            self._last.clear()
            for line in self.waits.values():
                line.ended.clear()

    def note_call(self) -> None:
        """Of a jitted function, by this thread. Who tells of one tells of all: reads between which there is none, as of
        the numbers in a record of a step, are one wait."""
        self._sees_calls = True
        if (last := self._last.get(threading.get_ident())) is not None:
            last.is_followed = True

    def note(self, by: str, begun: float, ended: float, where: str | None = None) -> None:
        """A wait from one reading of the clock to another, of the user's line on the stack if none is given."""
        where = where or user_line()
        if where is None:
            return
        with self._lock:
            line = self.waits.setdefault((where, by), WaitLine(where, by))
            thread = threading.get_ident()
            last = self._last.get(thread)
            if last is not None and last.line is line and self._is_one_wait(last, begun):
                last.go_on(begun, ended)
                line.ended[thread] = ended
                return
            if last is not None and last.line is not line and ended - begun < min(READ_S, last.waited_s / 2):
                # Another result of the call that has been waited for, at a line of its own.
                line.count += 1
                line.waited_s += ended - begun
                return
            if last is not None and last.line.count > WARM_UP:
                last.line.between_s += begun - last.ended
                last.line.gain_s += min(last.waited_s, begun - last.ended)
            line.count += 1
            line.waited_s += ended - begun
            if thread in line.ended and line.count > WARM_UP + 1:
                line.steps += 1
                line.stepped_s += ended - line.ended[thread]
            line.ended[thread] = ended
            self._last[thread] = _LastWait(line, ended - begun, ended)

    def _is_one_wait(self, last: _LastWait, begun: float) -> bool:
        """Does another wait at the same line belong to the last one, as of the next element of the same result?"""
        return (self._sees_calls and not last.is_followed) or begun - last.ended < NO_STEP * last.waited_s
