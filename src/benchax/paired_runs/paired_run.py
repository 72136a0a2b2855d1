"""A paired run: versions of one case, and what the processes that ran them side by side have given so far."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchax.comparing.break_even import SAME_PROGRAM
from benchax.comparing.judging import ComparisonEvidence, judge, judge_times
from benchax.comparing.ranking import in_order, is_slower, share_places, unranked_reason
from benchax.comparing.sequential import Stage
from benchax.environment import capture
from benchax.measuring import paired
from benchax.measuring.paired import PairedAnswer, PairedRequest, Side, SideFacts
from benchax.measuring.remarks import describe_busy, describe_nonfinite_result, describe_recompiling
from benchax.model import (
    Block,
    CaseId,
    Comparison,
    Environment,
    Failure,
    Method,
    Metric,
    Noise,
    Options,
    Remark,
    Version,
)
from benchax.program.compiled import INLINE_FLOPS
from benchax.stats.verdicts import ALPHA, SAME_WITHIN
from benchax.units import count, number, seconds
from benchax.workers.pool import Pool
from benchax.workers.task import limits_of

# ---- remarks ---------------------------------------------------------------------------------------------------------
#
# Remarks on comparisons whose sides are not alike.


ALONE_APART = 1.1
"""A remark is made if a ratio in a row is this far outside of the interval of the alternating samples."""


def remarks(answer: PairedAnswer, labels: Sequence[str]) -> tuple[Remark, ...]:
    """Makes remarks on the sides that ran."""
    return tuple(remark for remark in _remarks(answer, labels) if remark)


def _remarks(answer: PairedAnswer, labels: Sequence[str]) -> Iterator[Remark | None]:
    sides = list(zip(labels, answer.sides, strict=True))
    for label, side in sides:
        if side.agreement and not side.agreement.agrees:
            text = f"{label} returns a different result from {labels[0]}: {side.agreement.why}"
            yield Remark("outputs-differ", "error", text)
    for label, side in sides:
        yield describe_nonfinite_result(side.nonfinite, f"the result of {label}")
        if side.returns_nothing:
            yield Remark("no-outputs", "warning", f"{label} returns nothing, so there is no result to compare.")
    for label, why in zip(labels, answer.not_exported, strict=False):
        if why:
            text = f"{label} ran unchanged next to an exported program, because {why}"
            yield Remark("not-exported", "warning", text)
    # XLA:CPU runs small programs on the calling thread and passes larger ones to another, which costs 10 to 50 µs.
    known = [(label, side.inline_flops) for label, side in sides if side.inline_flops is not None]
    is_known = answer.environment.get("backend") == "cpu" and len(known) == len(sides)
    if is_known and len({flops < INLINE_FLOPS for _, flops in known}) == 2:
        listed = ", ".join(f"{label} {count(flops, 'FLOP')}" for label, flops in known)
        yield Remark(
            "inline-limit",
            "warning",
            f"they lie on different sides of XLA:CPU's limit of {INLINE_FLOPS} FLOP, above which a call is "
            f"dispatched to the thread pool: {listed}",
        )
    # An eager function that consists of one operation, or of one call of a jitted function, runs the same program as
    # its jitted form.
    if len(sides) == 2 and {side.operations for _, side in sides} == {None, 1}:
        label = next(label for label, side in sides if side.operations == 1)
        text = f"both run the same program: {label} is one operation, which JAX compiles as it is"
        yield Remark(SAME_PROGRAM, "info", text)


def doubts(compiles: Mapping[str, int], noise: Sequence[Noise]) -> tuple[Remark, ...]:
    """Lists the disturbances of the times.

    Args:
        compiles: programs that were compiled while a version was timed, by its label.
        noise: the load by other processes, for each process; the remark names the busiest.
    """
    busiest = max(noise, key=lambda each: (each.others_share or 0.0) + (each.steal_share or 0.0), default=Noise())
    found = [*(describe_recompiling(n, label) for label, n in compiles.items()), describe_busy(busiest)]
    return tuple(remark for remark in found if remark)


def alone(run: Comparison, alone_s: Sequence[tuple[float, float]]) -> Remark | None:
    """States both ratios if versions called in a row have another ratio than versions called alternately.

    Args:
        run: of run times, taken alternately.
        alone_s: for each process, seconds of a call of the baseline and of the candidate, each in its own row of calls.
    """
    if not run.ratio or not run.low or not run.high or not run.baseline_value or len(alone_s) < 2:
        return None
    ratios = [candidate / baseline for baseline, candidate in alone_s]
    if run.low / ALONE_APART <= max(ratios) and min(ratios) <= run.high * ALONE_APART:
        return None
    labels = run.baseline.label, run.candidate.label
    row_s = [median(each) for each in zip(*alone_s, strict=True)]
    turns_s = [run.baseline_value, run.baseline_value * run.ratio]
    return Remark(
        "alone-differs",
        "warning",
        f"when each is called in a row, {_compare(labels, row_s)}; alternately, which the verdict uses, "
        f"{_compare(labels, turns_s)}. A version leaves caches and memory in a different state for the next one than "
        "for itself; use the figure that matches your program",
    )


def _compare(labels: Sequence[str], each_s: Sequence[float]) -> str:
    """naive takes 16.5 times as long as fused (66.0 ms and 4.00 ms)"""
    (fast_s, fast), (slow_s, slow) = sorted(zip(each_s, labels, strict=True))
    return f"{slow} takes {number(slow_s / fast_s)} times as long as {fast} ({seconds(slow_s)} and {seconds(fast_s)})"


PATIENCE = 3
"""Times as long as in the first processes do the rounds of later ones take."""


@dataclass(frozen=True)
class PairedRun:
    """Versions of one case. The first is the baseline of the others."""

    case: CaseId
    sides: tuple[Side, ...]
    versions: tuple[Version, ...]
    options: Options
    remarks: tuple[Remark, ...] = ()
    ranks: bool = False
    """Do the versions have places? Then the comparisons that decide a place run together with the comparisons with the
    baseline.
    """


@dataclass(frozen=True)
class Group:
    """The samples of one process, or of one pair of processes."""

    process: int
    sides: Sequence[int]
    """Those that ran."""
    answer: PairedAnswer

    def facts(self, side: int) -> SideFacts | None:
        """None if it did not run."""
        return self.answer.sides[self.sides.index(side)] if side in self.sides else None

    def blocks(self, baseline: int, candidate: int) -> Iterator[Block]:
        """None if one of them did not run."""
        if self.answer.wall_ns is None or not {baseline, candidate} <= {*self.sides}:
            return
        columns = [self.sides.index(baseline), self.sides.index(candidate)]
        for b in range(len(self.answer.wall_ns)):
            cpu_s = () if self.answer.cpu_ns is None else self._seconds(self.answer.cpu_ns[b], columns)
            yield Block(self.process, *self._seconds(self.answer.wall_ns[b], columns), *cpu_s)

    def _seconds(self, ns: np.ndarray, columns: list[int]) -> tuple[tuple[float, ...], tuple[float, ...]]:
        one, other = (tuple((ns[:, column] / 1e9 / self.answer.iterations).tolist()) for column in columns)
        return one, other


@dataclass
class PairedSamples:
    """All answers about one paired run."""

    paired_run: PairedRun
    method: Method = "one process"
    groups: list[Group] = field(default_factory=list[Group])
    failures: dict[int, Failure] = field(default_factory=dict[int, Failure])
    """By side; of side 0 no other can be compared."""
    environment: Environment | None = None
    notes: tuple[Remark, ...] = ()
    resolution: float = SAME_WITHIN
    programs: Path | None = None
    """Folder of the executables that processes share; without it each compiles its own."""
    here: Callable[[], Environment] = field(default=lambda: capture(with_jax=False))
    """Tells the environment but JAX: those who take many runs ask git once for all."""

    def take(
        self,
        pool: Pool,
        stage: Stage[Any],
        say: Callable[[str], None],
    ) -> None:
        """One process more for `stage`. A side that fails is left out from then on, and the others run without it."""
        paired_run, effort = self.paired_run, stage.effort
        # A run that needs more processes takes its time: starting and building take longer than rounds.
        patience = 1 if stage.groups < effort.looks[0] else PATIENCE
        skips_equal = effort.skips_equal and not stage.groups  # what the first found to differ does so in the others
        while len(sides := self.running) > 1 and 0 in sides:
            chosen = tuple(paired_run.sides[i] for i in sides)
            # Don't use the seed of the data: each process needs another order.
            order = random.randrange(2**31)
            # A failed attempt also loses the reports of the others, which then compile again.
            programs = None if self.programs is None else str(self.programs / f"{len(self.failures)} failed")
            answer = pool.call(
                paired.take_blocks,
                PairedRequest(
                    chosen,
                    effort.blocks,
                    paired_run.options.seed,
                    order,
                    patience,
                    skips_equal,
                    not self.groups,
                    programs,
                ),
                limits_of(paired_run.options),
                name=f"the comparison of {paired_run.case.label!r}",
                on_message=lambda message: say(message["stage"]),
            )
            if isinstance(answer, Failure):
                self.failures[self.side_in(answer.stage)] = answer
            elif answer.failure is not None:
                self.failures[sides[answer.failed_side]] = answer.failure
            else:
                self.add(sides, answer)
                return

    def start_again(self) -> PairedSamples:
        """Nothing yet, for the second stage. Who ran into a limit once need not do so again."""
        return replace(self, groups=[], failures=dict(self.failures), environment=None, notes=())

    @property
    def running(self) -> list[int]:
        """The sides that have not failed."""
        return [i for i in range(len(self.paired_run.versions)) if i not in self.failures]

    def side_in(self, stage: str) -> int:
        """Whose fault it was, by the stage; where it does not say, it spoils all comparisons, as the baseline's."""
        label = stage.partition(" of ")[2]
        return next((i for i in self.running if self.paired_run.versions[i].label == label), 0)

    def add(self, sides: Sequence[int], answer: PairedAnswer) -> None:
        self.groups.append(Group(len(self.groups), sides, answer))
        if self.environment is None:
            self.environment = replace(self.here(), **answer.environment)
            self.notes = remarks(answer, [self.paired_run.versions[i].label for i in sides])

    def blocks(self, baseline: int, candidate: int) -> list[Block]:
        return [block for group in self.groups for block in group.blocks(baseline, candidate)]

    def _facts_of_both(self, candidate: int) -> list[tuple[int, SideFacts, SideFacts]]:
        """(process, of the baseline, of the candidate) for each group in which both ran."""
        pairs = ((group.process, group.facts(0), group.facts(candidate)) for group in self.groups)
        return [(process, one, other) for process, one, other in pairs if one and other]

    def evidence(self, candidate: int) -> ComparisonEvidence:
        known = self._facts_of_both(candidate)
        return ComparisonEvidence(
            self.blocks(0, candidate),
            [block for process, one, other in known for block in _pair_builds(process, one, other)],
            _pair_counts(*known[0][1:]) if known else {},
            self.failures.get(0) or self.failures.get(candidate),
            bool(self.groups) and self.groups[-1].answer.is_same_program,
        )

    def comparisons(self, alpha: float = ALPHA) -> list[Comparison]:
        """Compares all versions with the first, by all metrics."""
        candidates = range(1, len(self.paired_run.versions))
        return [self._with_alone(c, i) for i in candidates for c in judge(self.context(i), self.evidence(i), alpha)]

    def _with_alone(self, comparison: Comparison, candidate: int) -> Comparison:
        """With a remark where the versions differ otherwise when each is called in a row."""
        facts = self._facts_of_both(candidate)
        known = [(one.alone_s, other.alone_s) for _, one, other in facts if one.alone_s and other.alone_s]
        remark = alone(comparison, known) if comparison.metric == "run" else None
        return replace(comparison, remarks=(*comparison.remarks, remark)) if remark else comparison

    def rivals(self, alpha: float = ALPHA) -> list[Comparison]:
        """The comparisons of run times that decide places and are not with the baseline. Empty if there are no places.
        They use the same rounds: all versions ran in each."""
        if not self.paired_run.ranks or not self.groups or self.failures.get(0):
            return []
        runs = [c for c in self.comparisons(alpha) if c.metric == "run" and not unranked_reason(c)]
        baseline = self.paired_run.versions[0].label
        times = {baseline: 1.0} | {c.candidate.label: c.ratio for c in runs if c.ratio}
        asked: list[Comparison] = []

        def is_apart(one: str, other: str) -> bool:
            asked.append(self.between(one, other, alpha))
            return is_slower(asked[-1])

        share_places(in_order(times, lambda one, other: self.between(one, other, alpha)), is_apart)
        return [c for c in asked if baseline not in (c.baseline.label, c.candidate.label)]

    def between(self, one: str, other: str, alpha: float = ALPHA) -> Comparison:
        """The run time of `other` against that of `one`, by label."""
        where = {version.label: i for i, version in enumerate(self.paired_run.versions)}
        context = self.context(where[other], where[one])
        return judge_times(context, "run", self.blocks(where[one], where[other]), alpha)

    def context(self, candidate: int, baseline: int = 0) -> Comparison:
        facts = (self.groups[0].facts(candidate) if self.groups else None) or SideFacts()
        compiles = {
            version.label: sum(found.compiles for group in self.groups if (found := group.facts(i)))
            for i, version in enumerate(self.paired_run.versions)
        }
        disturbed = doubts(compiles, [group.answer.noise for group in self.groups])
        return Comparison(
            self.paired_run.case,
            "run",
            self._as_it_ran(baseline),
            self._as_it_ran(candidate),
            "unclear",
            method=self.method,
            numerics=facts.agreement,
            remarks=(*self.paired_run.remarks, *self.notes, *disturbed),
            environment=self.environment,
            compared_at=datetime.now(UTC).isoformat(timespec="microseconds"),
            resolution=self.resolution,
            work=facts.work,
            signature=self.groups[-1].answer.signature if self.groups else "",
        )

    def _as_it_ran(self, side: int) -> Version:
        version = self.paired_run.versions[side]
        facts = self.groups[0].facts(side) if self.groups else None
        if facts is None:
            return version
        return replace(version, program=facts.sha256, jax=version.jax or (self.environment and self.environment.jax))


def _pair_builds(process: int, one: SideFacts, other: SideFacts) -> list[Block]:
    """Seconds of the steps to build that both have (a program is traced already), of the last pair of builds. None
    where either compiled nothing: one program, or built by another process."""
    pairs = list(zip(one.builds, other.builds, strict=False))
    # Use the last one, because the first builds of a process include what JAX does once per process.
    both = pairs[-1][0].keys() & pairs[-1][1].keys() if pairs else set[str]()
    if "compile" not in both:
        return []
    seconds = [(sum(build[step] for step in both),) for build in pairs[-1]]
    return [Block(process, seconds[0], seconds[1])]


def _pair_counts(one: SideFacts, other: SideFacts) -> dict[Metric, tuple[float | None, float | None]]:
    """The compiler's counts for two sides, by metric; empty without plans."""
    if one.plan is None or other.plan is None:
        return {}
    return {
        "peak": (one.plan.predicted_peak_bytes, other.plan.predicted_peak_bytes),
        "constants": (one.plan.constant_bytes, other.plan.constant_bytes),
        "flops": (one.flops, other.flops),
    }
