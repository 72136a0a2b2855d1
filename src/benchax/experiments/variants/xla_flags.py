"""The same program compiled under other flags of XLA: `flags=--xla_…`.

XLA ends a process that has an unknown flag. So a separate process tries the flags first, and compares the outputs with
a run in float64. Then pairs of new processes are timed. Flags that are set in the environment hold for both sides.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, replace
from typing import Any

from benchax.case import Case
from benchax.errors import NotMeasured, UsageError
from benchax.experiments import variant_rows
from benchax.experiments.lab import Lab
from benchax.experiments.processes import Condition
from benchax.experiments.study import Observation, StudySide
from benchax.experiments.variant import Measure
from benchax.model import Failure
from benchax.results.experiment import VariantRow

XLA_FLAGS = "XLA_FLAGS"


@dataclass(frozen=True)
class Flags:
    name: str = "flags"
    title: str = "other flags of XLA (flags=--xla_…)"
    needs: str = ""
    only_by_name: bool = False

    def plan(self, case: Case, given: Any = None, seed: int = 0) -> Measure:
        if given is None:
            raise NotMeasured("it has to be told the flags: flags=--xla_cpu_enable_fast_math=true")
        flags = _parse_flags(str(given))
        return lambda lab: (self._row(case, flags, lab),)

    def _row(self, case: Case, flags: str, lab: Lab) -> VariantRow:
        # Read and not changed: XLA has read the flags of this process when its backend started.
        usual = os.environ.get(XLA_FLAGS, "")
        asked = f"{usual} {flags}".strip()
        as_it_is = Condition("as it is", environ={XLA_FLAGS: usual})
        changed = Condition(flags, environ={XLA_FLAGS: asked})
        lab.tell(f"trying {flags}")
        # First, since an unknown flag ends it in two seconds, before anything else has cost time.
        after = _look(case, changed, lab)
        if isinstance(after, Failure):
            return variant_rows.failed_row(self.name, flags, _of_xla(after))
        before = _look(case, as_it_is, lab)
        if isinstance(before, Failure):
            return variant_rows.failed_row(self.name, flags, before)
        row = variant_rows.seen_row(self.name, flags, after)
        if why := variant_rows.wrongness(None, after, before):
            return variant_rows.wrong_row(row, why)
        run = lab.time_processes(case, (as_it_is, changed))
        row = variant_rows.add_comparison(row, run, variant_rows.seen_row("baseline", "as it is", before))
        return _with_flags(row, flags, before, after)


def _look(case: Case, condition: Condition, lab: Lab) -> Observation | Failure:
    found = lab.study([StudySide(condition.label, case)], condition)
    return found.seen.get(condition.label) or found.failures[condition.label]


def _parse_flags(text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError:  # a quotation that does not end
        words = []
    if not words or not all(word.startswith("--") for word in words) or "\0" in text:
        hint = "several are separated by spaces, in quotes for the shell"
        raise UsageError(f"flags={text!r}", "flags of XLA, such as --xla_cpu_enable_fast_math=true", hint)
    return text.strip()


def _of_xla(failure: Failure) -> Failure:
    """With XLA's own words where it ended the process."""
    said = [line.partition("] ")[2] for line in failure.traceback.splitlines() if " in XLA_FLAGS" in line]
    if not said:
        return failure
    return Failure("crashed", "start", f"XLA ended the process: {said[-1]}", failure.advice, failure.traceback)


def _with_flags(row: VariantRow, flags: str, before: Observation, after: Observation) -> VariantRow:
    is_same = bool(before.digest) and before.digest == after.digest
    program = "the same after optimisation; the flags can still change the machine code" if is_same else "another one"
    return replace(row, facts=(("flags", flags), ("program", program)))


MEMBERS = (Flags(),)
