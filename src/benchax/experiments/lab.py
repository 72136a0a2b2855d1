"""Where variants are measured, and how they are judged beside a baseline.

A `Lab` has all that measures: the worker that looks at each side once (`study.py`), pairs of cases (`pair_timing.py`),
programs that are counted (`counting.py`), and pairs of fresh processes (`processes.py`). A variant is handed one, and
so is whatever else compares; tests hand in one with results made by hand. Knows no variant by name, so that variants
may import it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from benchax.case import Case
from benchax.comparing.sequential import Effort
from benchax.executors.call_limits import limits_of
from benchax.executors.isolated import Isolated
from benchax.executors.pool import Pool, shared_pool, spawned_pool
from benchax.executors.task import A, R, Task
from benchax.experiments import pair_timing, processes, study, variant_rows
from benchax.experiments.base import ChangedCase
from benchax.experiments.counting import Counted, count_ways
from benchax.experiments.pair_timing import Pair
from benchax.experiments.processes import Condition
from benchax.experiments.study import Study, StudySide
from benchax.model import Absent, Comparison, Failure, Measurement, Options
from benchax.progress import Listener, ProgressEvent, quiet
from benchax.results.experiment import VariantRow

BASELINE = "baseline"
BASELINE_OF_GROUP = "the others are compared with it"
USUAL = Condition("as usual")
LOOPS_COUNT_ONCE = Absent("flops", "XLA counts the body of a loop once")


class Lab(Protocol):
    """What measures for variants."""

    @property
    def options(self) -> Options:
        """Limits, and the seed."""
        ...

    @property
    def effort(self) -> Effort:
        """How long to go on with comparisons."""
        ...

    def tell(self, text: str) -> None:
        """Is told in words how far it is."""
        ...

    def study(self, sides: Sequence[StudySide], condition: Condition | None = None) -> Study:
        """Builds and runs every side once, in a worker; the first is the baseline.

        Args:
            condition: what the worker is to be born with; None: any that is warm.
        """
        ...

    def time_pairs(self, pairs: Sequence[Pair], looks: tuple[int, ...] | None = None) -> dict[str, Comparison]:
        """The comparison of run times of each pair, by its name, in fresh processes.

        Args:
            looks: after so many processes each; None: those of `effort`.
        """
        ...

    def count_programs(self, ways: Mapping[str, Sequence[Case]]) -> dict[str, Counted]:
        """How many programs a jitted function needs for a list of calls, for each way to make them, in a worker."""
        ...

    def time_processes(self, case: Case, conditions: tuple[Condition, Condition]) -> Comparison:
        """The comparison of run times under two conditions that a process is born with, in pairs of new processes."""
        ...

    def measure_alone(self, case: Case, condition: Condition, options: Options) -> Measurement:
        """A measurement in a new process that is born under that condition."""
        ...

    def call_alone(
        self, task: Task[A, R], argument: A, *, name: str, condition: Condition = USUAL, tells_stages: bool = True
    ) -> R | Failure:
        """What a task makes of its argument in a new process, or why nothing came of it.

        Args:
            name: of what is sent, for the message where it cannot be.
            tells_stages: False: whoever calls has said how far it is.
        """
        ...


@dataclass(frozen=True)
class WorkerLab:
    """The lab that measures in worker processes."""

    options: Options
    effort: Effort = field(default_factory=Effort)
    report: Listener = quiet

    def tell(self, text: str) -> None:
        self.report(ProgressEvent(text))

    def study(self, sides: Sequence[StudySide], condition: Condition | None = None) -> Study:
        if condition is None:
            return study.study(shared_pool(), sides, self.options, self.tell)
        with _pool_under(condition) as pool:
            return study.study(pool, sides, self.options, self.tell)

    def time_pairs(self, pairs: Sequence[Pair], looks: tuple[int, ...] | None = None) -> dict[str, Comparison]:
        effort = self.effort if looks is None else replace(self.effort, looks=looks)
        return pair_timing.time_pairs(pairs, self.options, effort, self.report)

    def count_programs(self, ways: Mapping[str, Sequence[Case]]) -> dict[str, Counted]:
        return count_ways(shared_pool(), ways, self.options, self.tell)

    def time_processes(self, case: Case, conditions: tuple[Condition, Condition]) -> Comparison:
        found = processes.pairs(case, conditions, self.options.seed, self.effort.max_time_s, self.report)
        return next(c for c in found if c.metric == "run")

    def measure_alone(self, case: Case, condition: Condition, options: Options) -> Measurement:
        with _pool_under(condition) as pool:
            return Isolated(pool=pool).run(case, options, run_id="", progress=lambda stage, share: None)

    def call_alone(
        self, task: Task[A, R], argument: A, *, name: str, condition: Condition = USUAL, tells_stages: bool = True
    ) -> R | Failure:
        def on_message(message: Mapping[str, Any]) -> None:
            if tells_stages:
                self.tell(message["stage"])

        with _pool_under(condition) as pool:
            return pool.call(task, argument, limits_of(self.options), name=name, on_message=on_message)


def _pool_under(condition: Condition) -> Pool:
    return spawned_pool(condition.environ, condition.settings)


def judge_variants(
    case: Case,
    titles: Mapping[str, str],
    changed: Mapping[str, ChangedCase],
    looked: Study,
    baseline: VariantRow,
    lab: Lab,
) -> dict[str, VariantRow]:
    """Rows of what was looked at; timed are those that are another program with right results."""
    rows: dict[str, VariantRow] = {}
    own = looked.seen[BASELINE]
    for name, one in changed.items():
        title = titles[name]
        if name in looked.failures:
            rows[name] = variant_rows.failed_row(name, title, looked.failures[name])
            continue
        seen = looked.seen[name]
        row = variant_rows.seen_row(name, title, seen)
        if why := variant_rows.wrongness(one.tolerance, seen, own):
            row = variant_rows.wrong(row, why)
        elif seen.digest and (seen.digest, seen.signature) == (own.digest, own.signature):
            row = variant_rows.same_program(row)
        rows[name] = row
    due = [name for name, row in rows.items() if row.status == "ok" and not row.sentence]
    pairs = [Pair(name, BASELINE, case, name, changed[name].case, changed[name].settings) for name in due]
    for name, comparison in lab.time_pairs(pairs).items():
        rows[name] = variant_rows.add_comparison(rows[name], comparison, baseline)
    return {name: _with_facts(row, changed[name], looked) for name, row in rows.items()}


def _with_facts(row: VariantRow, changed: ChangedCase, looked: Study) -> VariantRow:
    if row.name not in looked.seen:
        return row
    own, facts = looked.seen[BASELINE], list(row.facts)
    if changed.facts is not None:
        facts += changed.facts(own, looked.seen[row.name], row.comparison)
    beside = looked.seen.get(f"{BASELINE} beside {row.name}")
    if beside is not None and beside.digest != own.digest:
        listed = ", ".join(f"{name}={value}" for name, value in changed.settings.items())
        facts.append(("timed beside", f"the baseline under {listed}, which makes another program of it"))
    return replace(row, facts=tuple(facts))


@dataclass(frozen=True)
class Candidate:
    """A case that is compared with the baseline of its group."""

    name: str
    title: str
    changed: ChangedCase
    has_loop: bool = False
    """Of its own making: then XLA's count of operations is none."""


def measure_baseline_group(
    name: str, title: str, case: Case, candidates: Sequence[Candidate], lab: Lab
) -> tuple[VariantRow, ...]:
    """A row of `case`, which is the baseline here, and one of each candidate, compared with it."""
    changed = {one.name: one.changed for one in candidates}
    found = lab.study([StudySide(BASELINE, case), *(StudySide(key, one.case) for key, one in changed.items())])
    if BASELINE in found.failures:
        return (variant_rows.failed_row(name, title, found.failures[BASELINE]),)
    baseline = as_baseline_row(variant_rows.seen_row(name, title, found.seen[BASELINE]), title)
    rows = judge_variants(case, {one.name: one.title for one in candidates}, changed, found, baseline, lab)
    return (baseline, *(without_flops(rows[one.name]) if one.has_loop else rows[one.name] for one in candidates))


def as_baseline_row(row: VariantRow, sentence: str) -> VariantRow:
    """The row that the others of a group are compared with: it has no comparison of its own, and says why."""
    absent = (*row.absent, Absent("comparison", BASELINE_OF_GROUP))
    return replace(row, reason=BASELINE_OF_GROUP, sentence=sentence, absent=absent)


def without_flops(row: VariantRow) -> VariantRow:
    """The row of a program with a loop: XLA counts the body once, so that the rows could not be compared."""
    return row if row.flops is None else replace(row, flops=None, absent=(*row.absent, LOOPS_COUNT_ONCE))
