"""How variants are measured and judged beside a baseline.

Shared by `experiment`, `loops`, the ablation, and variants that bring a group of rows of their own.

Every side is built and run once in a worker (`study.py`); what works and is another program is timed in pairs
(`pair_timing.py`); each becomes a row (`variant_rows.py`). Knows no variant by name, so that variants may import it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchax.case import Case
from benchax.comparing.sequential import Effort
from benchax.executors.pool import shared_pool
from benchax.experiments import variant_rows
from benchax.experiments.base import PreparedVariant, Tell
from benchax.experiments.pair_timing import Pair, time_pairs
from benchax.experiments.study import Study, StudySide, study
from benchax.model import Absent, Comparison, Options
from benchax.options import resolve
from benchax.results.experiment import VariantRow

BASELINE = "baseline"
BASELINE_OF_GROUP = "the others are compared with it"
LOOPS_COUNT_ONCE = Absent("flops", "XLA counts the body of a loop once")
PairTimer = Callable[..., dict[str, Comparison]]


def quiet(text: str) -> None:
    """No progress."""


@dataclass(frozen=True)
class Lab:
    """How to go about it."""

    options: Options
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    effort: Effort = field(default_factory=Effort)
    tell: Tell = quiet
    study: Callable[..., Study] = study
    timed: PairTimer = time_pairs

    @property
    def variant_settings(self) -> Mapping[str, Any]:
        """For `Variant.prepare`."""
        return {"seed": self.options.seed, "options": self.options, "effort": self.effort, **self.given}

    def study_sides(self, sides: Sequence[StudySide]) -> Study:
        return self.study(shared_pool(), sides, self.options, self.tell)

    def time_pairs(self, duels: Sequence[Pair]) -> dict[str, Comparison]:
        return self.timed(duels, self.options, self.effort, self.tell)


def read_lab(given: Mapping[str, Any], tell: Tell, timed: PairTimer) -> Lab:
    """The lab of a variant that measures by itself: options and effort are the experiment's, where it gave them."""
    options = given.get("options") or resolve({"seed": given.get("seed", 0)})
    return Lab(options, effort=given.get("effort") or Effort(), tell=tell, timed=timed)


def judge_variants(
    case: Case,
    titles: Mapping[str, str],
    prepared: Mapping[str, PreparedVariant],
    looked: Study,
    baseline: VariantRow,
    request: Lab,
) -> dict[str, VariantRow]:
    """Rows of what was looked at; timed are those that are another program with right results."""
    rows: dict[str, VariantRow] = {}
    own = looked.seen[BASELINE]
    for name, one in prepared.items():
        title = titles[name]
        if name in looked.failures:
            rows[name] = variant_rows.failed_row(name, title, looked.failures[name])
            continue
        seen = looked.seen[name]
        row = variant_rows.seen_row(name, title, seen)
        if why := variant_rows.wrongness(one, seen, own):
            row = variant_rows.wrong(row, why)
        elif seen.digest and (seen.digest, seen.signature) == (own.digest, own.signature):
            row = variant_rows.same_program(row)
        rows[name] = row
    due = [name for name, row in rows.items() if row.status == "ok" and not row.sentence]
    duels = [Pair(name, BASELINE, case, name, prepared[name].case, prepared[name].settings) for name in due]
    for name, comparison in request.time_pairs(duels).items():
        rows[name] = variant_rows.add_comparison(rows[name], comparison, baseline)
    return {name: _with_facts(row, prepared[name], looked) for name, row in rows.items()}


def _with_facts(row: VariantRow, prepared: PreparedVariant, looked: Study) -> VariantRow:
    if row.name not in looked.seen:
        return row
    own, facts = looked.seen[BASELINE], list(row.facts)
    if prepared.facts is not None:
        facts += prepared.facts(own, looked.seen[row.name], row.comparison)
    beside = looked.seen.get(f"{BASELINE} beside {row.name}")
    if beside is not None and beside.digest != own.digest:
        listed = ", ".join(f"{name}={value}" for name, value in prepared.settings.items())
        facts.append(("timed beside", f"the baseline under {listed}, which makes another program of it"))
    return replace(row, facts=tuple(facts))


@dataclass(frozen=True)
class Candidate:
    """A variant that is prepared already."""

    name: str
    title: str
    prepared: PreparedVariant
    has_loop: bool = False
    """Of its own making: then XLA's count of operations is none."""


def measure_baseline_group(
    name: str, title: str, case: Case, candidates: Sequence[Candidate], lab: Lab
) -> tuple[VariantRow, ...]:
    """A row of `case`, which is the baseline here, and one of each candidate, compared with it."""
    prepared = {one.name: one.prepared for one in candidates}
    found = lab.study_sides([StudySide(BASELINE, case), *(StudySide(key, one.case) for key, one in prepared.items())])
    if BASELINE in found.failures:
        return (variant_rows.failed_row(name, title, found.failures[BASELINE]),)
    baseline = as_baseline_row(variant_rows.seen_row(name, title, found.seen[BASELINE]), title)
    rows = judge_variants(case, {one.name: one.title for one in candidates}, prepared, found, baseline, lab)
    return (baseline, *(without_flops(rows[one.name]) if one.has_loop else rows[one.name] for one in candidates))


def as_baseline_row(row: VariantRow, sentence: str) -> VariantRow:
    """The row that the others of a group are compared with: it has no comparison of its own, and says why."""
    absent = (*row.absent, Absent("comparison", BASELINE_OF_GROUP))
    return replace(row, reason=BASELINE_OF_GROUP, sentence=sentence, absent=absent)


def without_flops(row: VariantRow) -> VariantRow:
    """The row of a program with a loop: XLA counts the body once, so that the rows could not be compared."""
    return row if row.flops is None else replace(row, flops=None, absent=(*row.absent, LOOPS_COUNT_ONCE))
