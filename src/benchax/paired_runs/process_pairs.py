"""Compares two versions that cannot share a process: another JAX, or other Python code around the same program.

    pair:  two new processes, pinned to one core → each builds and warms up a case → short samples, strictly in turn

The two never compute at the same time: one runs, and the other waits for its request. Two processes on separate cores
disagreed by 4 to 10 % on unchanged code. Each stays on its core for seconds while the cores are not equally busy.
Sharing one core divides that out; the rest varies from process to process. So the pair is the unit: a block is a pair,
and verdicts are made after 8, 12 and 16 of them (`comparing/sequential.py`). A change is reported only if new pairs
confirm it.

This method cannot see how fast the versions are on more than one core. Every result says so.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from benchax.checkouts.boot import Launch, Selection
from benchax.comparing.judging import ComparisonEvidence, judge
from benchax.comparing.sequential import CONFIRMING_PAIRS, PAIRS, Effort, SequentialTest, Stage
from benchax.environment import affinity
from benchax.errors import UsageError
from benchax.machine import noise
from benchax.measuring.paired import WAKING_NS
from benchax.model import Block, CaseId, Comparison, Environment, Noise, Numerics, Remark, Version
from benchax.paired_runs.paired_run import block_of_builds, counts, doubts, remarks
from benchax.paired_runs.partners import Listing, Lost, Partner, start_partners
from benchax.paired_runs.session import report_process, time_gone
from benchax.progress import Listener, ProgressEvent, quiet
from benchax.units import plural

ROUNDS = ((WAKING_NS, 60), (10_000_000, 25), (200_000_000, 8), (1 << 62, 3))
"""The rounds of a pair, for calls up to this many nanoseconds. They cost little in comparison with starting two
processes.
"""
UNUSED_ROUNDS = 2
"""The first ones, in which the processes get used to each other."""
ONE_CORE = Remark(
    "one-core", "info", "each version ran in processes of its own, on one core: its speed on several was not measured"
)
NOT_PINNED = Remark(
    "not-pinned", "warning", "this system pins no process to a core, so that pairs scatter more and more is unclear"
)


def compare_launches(
    sides: tuple[Launch, Launch],
    selection: Selection,
    max_time_s: float | None = None,
    report: Listener = quiet,
) -> list[Comparison]:
    """The comparisons of all cases that both sides find, and why there are none of the others.

    Args:
        sides: baseline, candidate. Each finds the cases by itself.
        max_time_s: begin no further pair after this long; half of it is for confirming changes.

    Raises:
        UsageError: neither side finds a case.
        KeyboardInterrupt: passes through, and leaves no process.
    """
    pairs = Pairs(sides, selection, replace(PAIRS, max_time_s=max_time_s), CONFIRMING_PAIRS, report)
    pairs.run()
    return pairs.comparisons()


@dataclass
class ProcessPairSamples:
    """The results of the pairs of one stage for one case."""

    case: CaseId
    versions: tuple[Version, Version]
    is_pinned: bool
    least: int
    """Fewer pairs than these say nothing: what varies from process to process would be taken for a change."""
    evidence: ComparisonEvidence = field(default_factory=ComparisonEvidence)
    iterations: int = 0
    environment: Environment | None = None
    numerics: Numerics | None = None
    notes: tuple[Remark, ...] = ()
    signature: str = ""
    compiles: Counter[str] = field(default_factory=Counter[str])
    """Programs that were compiled in the samples, by version."""
    noise: list[Noise] = field(default_factory=list[Noise])
    """During the samples of each pair."""

    def comparisons(self, alpha: float) -> list[Comparison]:
        compiles = {version.label: self.compiles[version.label] for version in self.versions}
        notes = (ONE_CORE if self.is_pinned else NOT_PINNED, *self.notes, *doubts(compiles, self.noise))
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        context = Comparison(
            self.case, "run", *self.versions, "unclear", method="process pairs", numerics=self.numerics, remarks=notes,
            environment=self.environment, compared_at=now, signature=self.signature,
        )  # fmt: skip
        found = judge(context, self.evidence, alpha)
        pairs = len(self.evidence.run)
        if self.evidence.failure is not None or pairs >= self.least:
            return found
        why = f"there was time for {plural(pairs, 'pair')} of processes, and {self.least} are the least"
        return [replace(c, verdict="unclear", why=why) if c.method == "process pairs" else c for c in found]

    def rivals(self, alpha: float) -> list[Comparison]:
        """None: there are two versions."""
        return []

    def start_again(self) -> ProcessPairSamples:
        return ProcessPairSamples(self.case, self.versions, self.is_pinned, self.least)


class Pairs:
    """Pairs one after the other, until the test of every case has ended.

    Args:
        effort: of the first stage.
        second: of the stage that confirms changes.
    """

    def __init__(
        self,
        sides: tuple[Launch, Launch],
        selection: Selection,
        effort: Effort = PAIRS,
        second: Effort = CONFIRMING_PAIRS,
        report: Listener = quiet,
    ) -> None:
        self.sides, self.selection, self.report = sides, selection, report
        self.effort, self.second = effort, second
        self.tests: dict[CaseId, SequentialTest[ProcessPairSamples]] = {}
        """The tests of all cases that the first pair finds."""
        self.rng = random.Random(0)
        self.count = self.undecided = 0
        self.begun_s = monotonic()
        self.cores = affinity() or ()

    def run(self) -> None:
        self.begun_s = monotonic()
        due: list[Stage[ProcessPairSamples]] | None = None
        while due is None or due:
            self._take_pair(due)
            self.count += 1
            due = self._find_due(time_gone(self.begun_s, self.effort))

    def comparisons(self) -> list[Comparison]:
        return [c for test in self.tests.values() for c in test.comparisons()]

    def _find_due(self, gone: float) -> list[Stage[ProcessPairSamples]]:
        due = [stage for test in self.tests.values() if (stage := test.due(gone)) is not None]
        self.undecided = len(due)
        return self.rng.sample(due, len(due))

    # ---- a pair --------------------------------------------------------------------------------------------------

    def _take_pair(self, due: list[Stage[ProcessPairSamples]] | None) -> None:
        """Two processes for all that is due; two more go on where a crash has ended one of them.

        Args:
            due: None of the first pair, which lists the cases.
        """
        core = self.rng.choice(self.cores) if self.cores else None
        while due is None or due:
            self.report(ProgressEvent(f"starting pair {self.count + 1} of processes"))
            order = self.rng.sample((0, 1), 2)
            with start_partners([self.sides[i] for i in order], self.selection, core) as listed:
                partners = [listed[order.index(i)] for i in (0, 1)]
                listings = [partner.listing() for partner in partners]
                if due is None:
                    self._begin_tests(listings)
                    due = self._find_due(0.0)
                self._take_cases(due, partners, listings)

    def _begin_tests(self, listings: Sequence[Listing]) -> None:
        versions, least = (self.sides[0].version, self.sides[1].version), self.effort.looks[0]
        for case in (case for listing in listings for case in listing.cases):
            samples = ProcessPairSamples(case, versions, bool(self.cores), least)
            self.tests[case] = SequentialTest(samples, self.effort, self.second)
        if not self.tests:
            refused = next((listing.refused for listing in listings if listing.refused), None)
            failure = next((failure for listing in listings for failure in listing.broken), None)
            raise refused or UsageError(failure.message if failure else "there are no cases")

    def _take_cases(
        self, due: list[Stage[ProcessPairSamples]], partners: list[Partner], listings: list[Listing]
    ) -> None:
        """Takes from `due` for as long as both are alive."""
        is_first = True
        while due and (is_first or all(partner.is_alive for partner in partners)):
            if not is_first and time_gone(self.begun_s, self.effort) >= 1:
                due.clear()
                return
            stage, is_first = due.pop(), False
            seen, stage.groups = stage.samples, stage.groups + 1
            missing = [i for i in (0, 1) if seen.case not in listings[i].cases]
            if missing:
                seen.evidence.failure = listings[missing[0]].why_missing(partners[missing[0]].label)
                is_first = not any(listings[i].cases for i in missing)  # so are all others
                continue
            try:
                self._take(seen, partners, listings)
            except Lost as lost:
                seen.evidence.failure = lost.failure

    def _take(self, seen: ProcessPairSamples, partners: list[Partner], listings: list[Listing]) -> None:
        limit_s = listings[0].cases[seen.case][1]
        prepared: dict[int, dict[str, Any]] = {}
        for i in self.rng.sample((0, 1), 2):
            request = {"do": "prepare", "case": listings[i].cases[seen.case][0]}
            answer = partners[i].ask(request, (), limit_s, lambda stage: self._say(seen.case.label, stage))
            prepared[i] = answer.document
        seen.iterations = seen.iterations or prepared[0]["iterations"]
        call_ns = max(each["call_ns"] for each in prepared.values())
        self._say(seen.case.label, "rounds")
        begun = noise.start()
        ns = self._rounds(seen, partners, call_ns, limit_s)
        seen.noise.append(noise.finish(begun))
        seconds = [tuple(each / 1e9 / seen.iterations for each in side) for side in ns]
        if not seen.evidence.run:
            self._learn(seen, partners, prepared, listings, limit_s)
        seen.evidence.run.append(Block(self.count, seconds[0], seconds[1]))
        seen.evidence.build += block_of_builds(self.count, *(prepared[i]["facts"]["builds"][0] for i in (0, 1)))

    def _rounds(
        self, seen: ProcessPairSamples, partners: list[Partner], call_ns: int, limit_s: float | None
    ) -> tuple[list[int], list[int]]:
        """Nanoseconds of the samples of both."""
        compiled = [0, 0]
        count = next(rounds for limit_ns, rounds in ROUNDS if call_ns <= limit_ns)
        unused = UNUSED_ROUNDS if call_ns <= ROUNDS[1][0] else 0
        taken: tuple[list[int], list[int]] = ([], [])
        for _ in range(unused + count):
            for i in self.rng.sample((0, 1), 2):
                answer = partners[i].ask({"do": "sample", "iterations": seen.iterations}, (), limit_s)
                # Asked and answered before the other one is asked: two that compute at once would share the core.
                taken[i].append(answer.document["ns"])
                compiled[i] = answer.document["compiles"]
        seen.compiles.update({side.version.label: n for side, n in zip(self.sides, compiled, strict=True)})
        return taken[0][unused:], taken[1][unused:]

    def _learn(
        self,
        seen: ProcessPairSamples,
        partners: list[Partner],
        prepared: dict[int, dict[str, Any]],
        listings: list[Listing],
        limit_s: float | None,
    ) -> None:
        """Once: what does not change from pair to pair."""
        environments = [listing.environment for listing in listings]
        if environments[0] and environments[1]:
            seen.environment = common(environments[0], environments[1])
        facts = [prepared[i]["facts"] for i in (0, 1)]
        seen.signature = facts[0]["signature"]
        seen.evidence.counts = counts(*facts)
        try:
            outputs = partners[0].ask({"do": "outputs"}, (), limit_s)
            request = {"do": "agree", "leaves": outputs.document["leaves"]}
            agreement = partners[1].ask(request, outputs.sections, limit_s).document["agreement"]
            facts[1]["agreement"] = agreement
            seen.numerics = Numerics(**agreement)
        except Lost as lost:
            if not all(partner.is_alive for partner in partners):
                raise
            why = f"the outputs were not compared, because {lost.failure.message}"
            seen.notes = (Remark("outputs-not-compared", "warning", why),)
        backend = {"backend": environments[0].backend if environments[0] else None}
        document = {"sides": facts, "not_exported": [], "environment": backend}
        seen.notes += remarks(document, [side.version.label for side in self.sides])

    def _say(self, case: str, stage: str) -> None:
        report_process(self.report, self.count, self.undecided, len(self.tests), case, stage)


def common(one: Environment, other: Environment) -> Environment:
    """The values that both share; None if they differ, as their versions of JAX do."""
    differing = {name: None for name in ("jax", "jaxlib", "numpy") if getattr(one, name) != getattr(other, name)}
    return replace(other, **differing)
