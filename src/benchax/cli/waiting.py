"""Prints messages at a terminal while the user's program runs. They are rare, because the terminal is the program's.

The end of the program is unknown, so there is no remaining time. A message has the elapsed time, what it waits for,
and the news from the hook inside the program. The hook writes its news to a folder, with a file for each process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from benchax.cli.console import note
from benchax.progress import round_seconds

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
        now = (
            {file: file.read_text(encoding="utf-8") for file in sorted(self.folder.glob("*.txt"))}
            if self.folder
            else {}
        )
        news = [text for file, text in now.items() if text and self.told.get(file) != text]
        self.told = now
        return news


def at_terminal(command: str, folder: Path | None = None) -> Waiting | None:
    """Returns None if stderr is not a terminal, so that these messages do not fill a log."""
    return Waiting(command, folder) if sys.stderr.isatty() else None
