"""Variants that are measured beside something else than the function as it is: beside its gradient, say.

Looks and times as `run.py` does for the function itself, and gives one row more, of that which the others stand beside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchax.case import Case
from benchax.experiments import judging
from benchax.experiments.base import Prepared, Tell
from benchax.experiments.study import Side
from benchax.model import Absent, Comparison, Options
from benchax.options import resolve
from benchax.pairing.session import Effort
from benchax.results.experiment import VariantRow

Timed = Callable[..., dict[str, Comparison]]
STANDS_FOR_ITSELF = "the others stand beside it"
LOOPS_COUNT_ONCE = Absent("flops", "XLA counts the body of a loop once")


@dataclass(frozen=True)
class Entry:
    """A variant that is prepared already."""

    name: str
    title: str
    prepared: Prepared
    has_loop: bool = False
    """Of its own making: then XLA's count of operations is none."""


@dataclass(frozen=True)
class Means:
    """How to go about it."""

    options: Options
    effort: Effort
    tell: Tell
    timed: Timed


def means(given: Mapping[str, Any], tell: Tell, timed: Timed) -> Means:
    """From what a variant is told: the options and the effort of the experiment, where they are there."""
    options = given.get("options") or resolve({"seed": given.get("seed", 0)})
    return Means(options, given.get("effort") or Effort(), tell, timed)


def rows_beside(name: str, title: str, case: Case, entries: Sequence[Entry], means: Means) -> tuple[VariantRow, ...]:
    """A row of `case`, and one of each entry, compared with it."""
    # Here, because run.py imports the variants.
    from benchax.experiments.run import BASELINE, Request, judged  # noqa: PLC0415

    request = Request(means.options, effort=means.effort, tell=means.tell, timed=means.timed)
    prepared = {entry.name: entry.prepared for entry in entries}
    looked = request.look([Side(BASELINE, case), *(Side(key, one.case) for key, one in prepared.items())])
    if BASELINE in looked.failures:
        return (judging.failed_row(name, title, looked.failures[BASELINE]),)
    own = judging.seen_row(name, title, looked.seen[BASELINE])
    absent = (*own.absent, Absent("comparison", STANDS_FOR_ITSELF))
    own = replace(own, reason=STANDS_FOR_ITSELF, sentence=title, absent=absent)
    rows = judged(case, {entry.name: entry.title for entry in entries}, prepared, looked, own, request)
    return (own, *(_without_flops(rows[entry.name]) if entry.has_loop else rows[entry.name] for entry in entries))


def _without_flops(row: VariantRow) -> VariantRow:
    return replace(row, flops=None, absent=(*row.absent, LOOPS_COUNT_ONCE))
