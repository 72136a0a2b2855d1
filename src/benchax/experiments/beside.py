"""Variants that are measured beside something else than the function as it is: beside its gradient, say.

Looks and times as `run.py` does for the function itself, and gives one row more, of that which the others stand beside.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from benchax.case import Case
from benchax.experiments import judging
from benchax.experiments.base import Prepared, Tell
from benchax.experiments.study import Side
from benchax.experiments.timing import timed
from benchax.model import Absent
from benchax.options import resolve
from benchax.results.experiment import VariantRow

STANDS_FOR_ITSELF = "the others stand beside it"


@dataclass(frozen=True)
class Entry:
    """A variant that is prepared already."""

    name: str
    title: str
    prepared: Prepared
    needs: str = ""

    def prepare(self, case: Case, given: Mapping[str, object]) -> Prepared:
        return self.prepared


def rows_beside(
    name: str, title: str, case: Case, entries: list[Entry], seed: int, tell: Tell
) -> tuple[VariantRow, ...]:
    """A row of `case`, and one of each entry, compared with it."""
    # Here, because run.py imports the variants.
    from benchax.experiments.run import BASELINE, Request, judged  # noqa: PLC0415

    request = Request(resolve({"seed": seed}), tell=tell, timed=timed)
    prepared = {entry.name: entry.prepared for entry in entries}
    looked = request.look([Side(BASELINE, case), *(Side(key, one.case) for key, one in prepared.items())])
    if BASELINE in looked.failures:
        return (judging.failed_row(name, title, looked.failures[BASELINE]),)
    own = judging.seen_row(name, title, looked.seen[BASELINE])
    absent = (*own.absent, Absent("comparison", STANDS_FOR_ITSELF))
    own = replace(own, reason=STANDS_FOR_ITSELF, sentence=title, absent=absent)
    rows = judged(case, {entry.name: entry for entry in entries}, prepared, looked, own, request)
    return (own, *(rows[entry.name] for entry in entries))
