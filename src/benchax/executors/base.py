"""The contract of an executor: it turns a case into a row, wherever that happens, whatever the function does."""

from __future__ import annotations

from typing import Protocol

from benchax.case import Case
from benchax.measuring.engine import Progress
from benchax.model import Measurement, Options


class Executor(Protocol):
    def run(self, case: Case, options: Options, *, run_id: str, progress: Progress) -> Measurement:
        """Never raises for what the user's function does; KeyboardInterrupt passes through and leaves no process."""
        ...
