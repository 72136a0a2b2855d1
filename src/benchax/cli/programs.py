"""Messages of commands at a terminal about the user's program: while it runs, and how it ended.

The end of the program is unknown, so there is no remaining time. A message has the elapsed time, what it waits for,
and the news from the hook inside the program. Messages are rare, because the terminal is the program's. The hook writes
its news to a folder, with a file for each process.
"""

from __future__ import annotations

import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchax.cli.console import note
from benchax.progress import round_seconds
from benchax.units import seconds

if TYPE_CHECKING:
    from benchax.hooks.command import EndedCommand

FIRST_S = 10.0
THEN_TIMES = 3
"""Messages come after 10 s, 30 s, 90 s and so on, because each line interrupts the program's own output."""


class Waiting:
    """Prints a message when there is news, or after a long silence. The caller calls it once a second.

    Args:
        command: the name of the benchax command, such as watch.
        folder: the program's processes write their news there; None if they have no news.
        say: prints a message; tests replace it.
    """

    def __init__(self, command: str, folder: Path | None = None, say: Callable[[str], None] = note) -> None:
        self.command, self.folder, self.say = command, folder, say
        self.due_s = FIRST_S
        self.told: dict[Path, str] = {}

    def __call__(self, elapsed_s: float) -> None:
        news = self._hear()
        if news or elapsed_s >= self.due_s:
            rest = "; ".join(news) or "the report comes when the program ends"
            self.say(f"\nbenchax {self.command}: after {round_seconds(elapsed_s)}: {rest}")
            self.due_s = max(FIRST_S, THEN_TIMES * elapsed_s)

    def _hear(self) -> list[str]:
        """Returns the texts that are new since the last call."""
        files = sorted(self.folder.glob("*.txt")) if self.folder else []
        before, self.told = self.told, {file: file.read_text(encoding="utf-8") for file in files}
        return [text for file, text in self.told.items() if text and before.get(file) != text]


def at_terminal(command: str, folder: Path | None = None) -> Waiting | None:
    """Returns None if stderr is not a terminal, so that these messages do not fill a log."""
    return Waiting(command, folder) if sys.stderr.isatty() else None


def describe_end(command: Sequence[str], ended: EndedCommand) -> str:
    """Returns a text such as: benchax: python train.py ended with 0 after 12.3 s."""
    after = f"after {seconds(ended.elapsed_s)}"
    how = f"ended with {ended.exit_code} {after}"
    if ended.is_timed_out:
        how = f"was ended {after}, when its time was up"
    elif ended.signal is not None:
        # A real-time signal has no name.
        known = {each.value: each.name for each in signal.Signals}
        how = f"was ended by {known.get(ended.signal, f'signal {ended.signal}')} {after}"
    return f"benchax: {shlex.join(command)} {how}"


def tell_end(command: Sequence[str], ended: EndedCommand, remarks: Iterable[str] = ()) -> None:
    """Prints how the program ended, and remarks about it."""
    note(f"\n{describe_end(command, ended)}")
    for remark in (*ended.remarks, *remarks):
        note(f"note: {remark}")
