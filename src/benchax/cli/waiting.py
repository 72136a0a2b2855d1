"""What is said at a terminal while a program of the user's runs: seldom, for the terminal is the program's.

When it ends nobody knows, so there is no time left: it is told how long it runs, what is waited for, and what the hook
inside the program has told so far. It tells by a file in a folder, one for each process.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from benchax.cli.console import note
from benchax.progress import round_seconds

FIRST_S = 10.0
THEN_TIMES = 3
"""Said after 10 s, 30 s, 90 s and so on: each line breaks into what the program draws."""


class Waiting:
    """Called once in a second with how long a program runs, it speaks when there is news, or nothing was said for long.

    Args:
        command: the name of ours: watch.
        folder: where the program's processes tell what they have; None: they tell nothing.
        say: for tests.
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
        """What is said now and was not before."""
        now = (
            {file: file.read_text(encoding="utf-8") for file in sorted(self.folder.glob("*.txt"))}
            if self.folder
            else {}
        )
        news = [text for file, text in now.items() if text and self.told.get(file) != text]
        self.told = now
        return news


def at_terminal(command: str, folder: Path | None = None) -> Waiting | None:
    """None where nobody sits there: a log is not to be filled."""
    return Waiting(command, folder) if sys.stderr.isatty() else None
