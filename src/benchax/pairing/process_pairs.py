"""Compares two versions that cannot share a process: another JAX, or other Python code around the same program.

    pair:  two new processes, pinned to one core → each builds and warms up a case → short samples, strictly in turn

Never do both compute at the same time: one runs, the other waits to be asked. Two processes on cores of their own
disagreed by 4 to 10 % on unchanged code, since each stays on its core for seconds while the cores are not equally
busy. Sharing one core divides that out; what is left is the luck of each process. So the pair is the unit: a block is
a pair, looks come after 8, 12 and 16 of them, and a change is called one only if as many new pairs confirm it.

What this cannot see is how fast the versions are on more than one core; that is said beside every result.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from time import monotonic
from typing import Any

from benchax.checkouts.boot import Launch, Selection
from benchax.comparing.judging import ComparisonContext, ComparisonEvidence, confirmed, judged
from benchax.errors import UsageError
from benchax.measuring.paired import WAKING_NS
from benchax.model import Block, CaseId, Comparison, Environment, Numerics, Remark
from benchax.pairing.paired_run import counts
from benchax.pairing.partners import Listing, Lost, Partner, started
from benchax.pairing.remarks import remarks
from benchax.pairing.session import Effort, Progress, SessionStep, quiet
from benchax.stats.verdicts import CONFIRMING_ALPHA

PAIRS = Effort((8, 12, 16), alpha=0.01)
CONFIRMING_PAIRS = Effort((8, 12), alpha=CONFIRMING_ALPHA)
ROUNDS = ((WAKING_NS, 60), (10_000_000, 25), (200_000_000, 8), (1 << 62, 3))
"""Of a pair, for calls up to so many nanoseconds. Next to starting two processes they cost nothing."""
UNUSED_ROUNDS = 2
"""The first ones, in which the processes get used to each other."""
ONE_CORE = Remark(
    "one-core", "info", "each version ran in processes of its own, on one core: its speed on several was not measured"
)
NOT_PINNED = Remark(
    "not-pinned", "warning", "this system pins no process to a core, so that pairs scatter more and more is unclear"
)


def compared(
    sides: tuple[Launch, Launch],
    selection: Selection,
    max_time_s: float | None = None,
    progress: Progress = quiet,
) -> list[Comparison]:
    """The comparisons of all cases that both sides find, and why there are none of the others.

    Args:
        sides: baseline, candidate. Each finds the cases by itself.
        max_time_s: begin no further pair after this long, but for confirming a change.

    Raises:
        UsageError: neither side finds a case.
        KeyboardInterrupt: passes through, and leaves no process.
    """
    first = Pairs(sides, selection, replace(PAIRS, max_time_s=max_time_s), progress)
    first.run()
    found = {case: first.judged(seen) for case, seen in first.seen.items()}
    changed = [case for case, comparisons in found.items() if any(map(is_change, comparisons))]
    if changed:
        second = Pairs(sides, selection, CONFIRMING_PAIRS, progress, changed, first.count)
        second.run()
        for case in changed:
            again = {c.metric: c for c in second.judged(second.seen[case])}
            found[case] = [confirmed(c, again.get(c.metric, again["run"])) if is_change(c) else c for c in found[case]]
    return [c for each in found.values() for c in each]


def is_change(comparison: Comparison) -> bool:
    """Is it one that chance could have made?"""
    return comparison.method == "process pairs" and comparison.verdict in ("slower", "faster")


@dataclass
class Seen:
    """What the pairs told about one case."""

    case: CaseId
    evidence: ComparisonEvidence = field(default_factory=ComparisonEvidence)
    iterations: int = 0
    environment: Environment | None = None
    numerics: Numerics | None = None
    notes: tuple[Remark, ...] = ()


class Pairs:
    """Pairs one after the other, until every case is decided or `effort` is spent.

    Args:
        cases: default: all that the first pair finds.
        begun: how many pairs there were before, so that these have other random orders.
    """

    def __init__(
        self,
        sides: tuple[Launch, Launch],
        selection: Selection,
        effort: Effort,
        progress: Progress = quiet,
        cases: Sequence[CaseId] | None = None,
        begun: int = 0,
    ) -> None:
        self.sides, self.selection, self.effort, self.progress = sides, selection, effort, progress
        self.seen = {case: Seen(case) for case in cases or ()}
        self.knows_cases = cases is not None
        self.rng = random.Random(begun)
        self.count = 0
        self.cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []

    def run(self) -> None:
        begun, effort = monotonic(), self.effort
        while self.count < effort.looks[-1] and (not self.knows_cases or self._undecided()):
            if self.count and effort.max_time_s is not None and monotonic() - begun > effort.max_time_s:
                break
            self._pair()
            self.count += 1

    def judged(self, seen: Seen) -> list[Comparison]:
        versions = (self.sides[0].version, self.sides[1].version)
        notes = (ONE_CORE if self.cores else NOT_PINNED, *seen.notes)
        now = datetime.now(UTC).isoformat(timespec="microseconds")
        context = ComparisonContext(seen.case, *versions, "process pairs", seen.numerics, notes, seen.environment, now)
        found = judged(context, seen.evidence, self.effort.alpha)
        pairs, least = len(seen.evidence.run), self.effort.looks[0]
        if seen.evidence.failure is not None or pairs >= least:
            return found
        why = f"there was time for {pairs} pair{'s' * (pairs != 1)} of processes, and {least} are the least"
        return [replace(c, verdict="unclear", why=why) if c.method == "process pairs" else c for c in found]

    def _undecided(self) -> list[CaseId]:
        return [case for case, seen in self.seen.items() if not self._is_decided(seen)]

    def _is_decided(self, seen: Seen) -> bool:
        if seen.evidence.failure is not None:
            return True
        runs = [c for c in self.judged(seen) if c.metric == "run"]
        return len(seen.evidence.run) in self.effort.looks and all(c.verdict != "unclear" for c in runs)

    # ---- a pair --------------------------------------------------------------------------------------------------

    def _pair(self) -> None:
        """Two processes for all cases; two more go on where a crash has ended one of them."""
        core = self.rng.choice(self.cores) if self.cores else None
        left = self._shuffled() if self.knows_cases else None
        while left is None or left:
            self._say("", "start")
            order = self.rng.sample((0, 1), 2)
            with started([self.sides[i] for i in order], self.selection, core) as listed:
                partners = [listed[order.index(i)] for i in (0, 1)]
                listings = [partner.listing() for partner in partners]
                if left is None:
                    self._begin(listings)
                    left = self._shuffled()
                self._cases(left, partners, listings)

    def _begin(self, listings: Sequence[Listing]) -> None:
        self.seen = {case: Seen(case) for listing in listings for case in listing.cases}
        self.knows_cases = True
        if not self.seen:
            refused = next((listing.refused for listing in listings if listing.refused), None)
            failure = next((failure for listing in listings for failure in listing.broken), None)
            raise refused or UsageError(failure.message if failure else "there are no cases")

    def _shuffled(self) -> list[CaseId]:
        undecided = self._undecided()
        return self.rng.sample(undecided, len(undecided))

    def _cases(self, left: list[CaseId], partners: list[Partner], listings: list[Listing]) -> None:
        """Takes cases from `left` for as long as both are alive."""
        is_first = True
        while left and (is_first or all(partner.is_alive for partner in partners)):
            seen, is_first = self.seen[left.pop()], False
            missing = [i for i in (0, 1) if seen.case not in listings[i].cases]
            if missing:
                seen.evidence.failure = listings[missing[0]].why_missing(partners[missing[0]].label)
                is_first = not any(listings[i].cases for i in missing)  # so are all others
                continue
            try:
                self._take(seen, partners, listings)
            except Lost as lost:
                seen.evidence.failure = lost.failure

    def _take(self, seen: Seen, partners: list[Partner], listings: list[Listing]) -> None:
        limit_s = listings[0].cases[seen.case][1]
        prepared: dict[int, dict[str, Any]] = {}
        for i in self.rng.sample((0, 1), 2):
            request = {"do": "prepare", "case": listings[i].cases[seen.case][0]}
            answer = partners[i].ask(request, (), limit_s, lambda stage: self._say(seen.case.label, stage))
            prepared[i] = answer.document
        seen.iterations = seen.iterations or prepared[0]["iterations"]
        call_ns = max(each["call_ns"] for each in prepared.values())
        self._say(seen.case.label, "rounds")
        ns = self._rounds(partners, seen.iterations, call_ns, limit_s)
        seconds = [tuple(each / 1e9 / seen.iterations for each in side) for side in ns]
        if not seen.evidence.run:
            self._learn(seen, partners, prepared, listings, limit_s)
        seen.evidence.run.append(Block(self.count, seconds[0], seconds[1]))
        seen.evidence.build += _build(self.count, prepared)

    def _rounds(
        self, partners: list[Partner], iterations: int, call_ns: int, limit_s: float | None
    ) -> tuple[list[int], list[int]]:
        """Nanoseconds of the samples of both."""
        count = next(rounds for limit_ns, rounds in ROUNDS if call_ns <= limit_ns)
        unused = UNUSED_ROUNDS if call_ns <= ROUNDS[1][0] else 0
        taken: tuple[list[int], list[int]] = ([], [])
        for _ in range(unused + count):
            for i in self.rng.sample((0, 1), 2):
                answer = partners[i].ask({"do": "sample", "iterations": iterations}, (), limit_s)
                taken[i].append(answer.document["ns"])
        return taken[0][unused:], taken[1][unused:]

    def _learn(
        self,
        seen: Seen,
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
        undecided = len(self._undecided()) if self.knows_cases else 0
        self.progress(SessionStep(self.count, case, stage, undecided, len(self.seen)))


def _build(pair: int, prepared: dict[int, dict[str, Any]]) -> list[Block]:
    """Of the steps that both have; none where either compiled nothing."""
    builds = [prepared[i]["facts"]["builds"][0] for i in (0, 1)]
    both = builds[0].keys() & builds[1].keys()
    if "compile" not in both:
        return []
    one, other = (sum(build[step] for step in both) for build in builds)
    return [Block(pair, (one,), (other,))]


def common(one: Environment, other: Environment) -> Environment:
    """What holds for both; None where they differ, as their versions of JAX do."""
    differing = {name: None for name in ("jax", "jaxlib", "numpy") if getattr(one, name) != getattr(other, name)}
    return replace(other, **differing)
