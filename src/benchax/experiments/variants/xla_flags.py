"""The same program compiled under other flags of XLA: `flags=--xla_…`.

XLA ends a process that has a flag which it does not know. So the flags are tried in a process of their own first, where
the outputs are compared with a run in float64 as well, and timed afterwards in pairs of new processes. Flags that are
set in the environment hold for both sides.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchax.case import Case
from benchax.errors import NotMeasured, UsageError
from benchax.executors.pool import Pool
from benchax.experiments import variant_rows
from benchax.experiments.base import Observation, PreparedVariant, Tell
from benchax.experiments.processes import Condition, pairs
from benchax.experiments.study import Study, StudySide, study
from benchax.model import Comparison, Failure, Options
from benchax.options import resolve
from benchax.paired_runs.process_pairs import compare_launches as by_pairs
from benchax.results.experiment import VariantRow

XLA_FLAGS = "XLA_FLAGS"


def looked_at(case: Case, flags: str, options: Options, tell: Tell) -> Study:
    """A look at the case in a process that is born with these flags."""
    with with_env(flags), Pool(start="spawn", warm=False, reuse=False) as pool:
        return study(pool, [StudySide(flags, case)], options, tell)


@contextmanager
def with_env(flags: str) -> Iterator[None]:
    """What this program starts meanwhile has these flags; this program has read its own long before."""
    before = os.environ.get(XLA_FLAGS)
    os.environ[XLA_FLAGS] = flags
    try:
        yield
    finally:
        if before is None:
            del os.environ[XLA_FLAGS]
        else:
            os.environ[XLA_FLAGS] = before


@dataclass(frozen=True)
class Flags:
    name: str = "flags"
    title: str = "other flags of XLA (flags=--xla_…)"
    needs: str = ""
    pairs: Callable[..., list[Comparison]] = by_pairs
    look: Callable[[Case, str, Options, Tell], Study] = looked_at

    def prepare(self, case: Case, given: Mapping[str, Any]) -> PreparedVariant:
        if self.name not in given:
            raise NotMeasured("it has to be told the flags: flags=--xla_cpu_enable_fast_math=true")
        flags = _parse_flags(str(given[self.name]))
        return PreparedVariant(case, measure=lambda tell: self._row(case, flags, given, tell), combines=False)

    def _row(self, case: Case, flags: str, given: Mapping[str, Any], tell: Tell) -> VariantRow:
        seed, effort = given.get("seed", 0), given.get("effort")
        options = given.get("options") or resolve({"seed": seed})
        usual = os.environ.get(XLA_FLAGS, "")
        asked = f"{usual} {flags}".strip()
        tell(f"trying {flags}")
        after = self.look(case, asked, options, tell)
        if asked not in after.seen:
            return variant_rows.failed_row(self.name, flags, _of_xla(after.failures[asked]))
        before = self.look(case, usual, options, tell)
        if usual not in before.seen:
            return variant_rows.failed_row(self.name, flags, before.failures[usual])
        row = variant_rows.seen_row(self.name, flags, after.seen[asked])
        if why := variant_rows.wrongness(PreparedVariant(case), after.seen[asked], before.seen[usual]):
            return variant_rows.wrong(row, why)
        sides = (Condition("as it is", environ={XLA_FLAGS: usual}), Condition(flags, environ={XLA_FLAGS: asked}))
        found = pairs(case, sides, seed, effort.max_time_s if effort else None, tell, self.pairs)
        run = next(c for c in found if c.metric == "run")
        row = variant_rows.add_comparison(row, run, variant_rows.seen_row("baseline", "as it is", before.seen[usual]))
        return _with_flags(row, flags, before.seen[usual], after.seen[asked])


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
    return VariantRow(**{**vars(row), "facts": (("flags", flags), ("program", program))})


MEMBERS = (Flags(),)
