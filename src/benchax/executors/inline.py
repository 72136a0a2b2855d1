"""Runs a case in this process: nothing to start, nothing to send, and a crash takes the session with it."""

from __future__ import annotations

from benchax.case import Case
from benchax.measuring.engine import Progress, measure
from benchax.model import Measurement, Options


class Inline:
    def run(self, case: Case, options: Options, *, run_id: str, progress: Progress) -> Measurement:
        return measure(case, options, run_id=run_id, progress=progress)
