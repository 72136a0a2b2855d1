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

import dataclasses
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any

import numpy as np

from benchax.checkouts.launch import Launch, Selection
from benchax.checkouts.partners import Listing, Partner, WarmCase, give_outputs, prepare_case, sample_case
from benchax.comparing.sequential import CONFIRMING_PAIRS, PAIRS, Effort, SequentialTest, Stage
from benchax.environment import affinity
from benchax.errors import UsageError
from benchax.json_values import Json
from benchax.machine import noise
from benchax.measuring.paired import WAKING_NS, PairedAnswer, SideFacts, take_round
from benchax.model import Comparison, Environment, Remark
from benchax.numerics import compare
from benchax.options import DEFAULTS
from benchax.paired_runs.paired_run import PairedRun, PairedSamples
from benchax.paired_runs.session import take_groups
from benchax.progress import Listener, ProgressEvent, quiet
from benchax.stats.verdicts import ALPHA
from benchax.units import plural
from benchax.workers.task import Failed

ROUNDS = ((WAKING_NS, 60), (10_000_000, 25), (200_000_000, 8), (1 << 62, 3))
"""The rounds of a pair, for calls up to this many nanoseconds. They cost little in comparison with starting two
processes.
"""
UNUSED_ROUNDS = 2
"""The first ones, in which the processes get used to each other."""
ONE_CORE = Remark(
    "one-core",
    "info",
    "each version ran in separate processes on one core; its speed on several cores was not measured",
)
NOT_PINNED = Remark(
    "not-pinned",
    "warning",
    "this system can't pin processes to a core, so pairs scatter more and more verdicts are unclear",
)


def compare_launches(
    sides: tuple[Launch, Launch],
    selection: Selection | bytes,
    max_time_s: float | None = None,
    report: Listener = quiet,
    effort: Effort = PAIRS,
    second: Effort = CONFIRMING_PAIRS,
) -> list[Comparison]:
    """The comparisons of all cases that both sides find, and why there are none of the others.

    Args:
        sides: baseline, candidate. Each finds the cases by itself.
        selection: the cases; or one case, pickled.
        max_time_s: begin no further pair after this long; half of it is for confirming changes.
        effort, second: of both stages.

    Raises:
        UsageError: neither side finds a case.
        KeyboardInterrupt: passes through, and leaves no process.
    """
    effort = replace(effort, max_time_s=max_time_s)
    begun_s, rng, cores = monotonic(), random.Random(0), affinity() or ()
    with ExitStack() as stack:
        # The first pair also lists the cases.
        waiting = [stack.enter_context(closing(ProcessPair(sides, selection, rng, cores, report)))]

        def start() -> AbstractContextManager[ProcessPair]:
            return nullcontext(waiting.pop()) if waiting else closing(ProcessPair(sides, selection, rng, cores, report))

        note, versions = ONE_CORE if cores else NOT_PINNED, (sides[0].version, sides[1].version)
        cases = dict.fromkeys(case for listing in waiting[0].listings for case in listing.cases)
        runs = [PairedRun(case, (), versions, DEFAULTS, (note,)) for case in cases]
        samples = [ProcessPairSamples(run, "process pairs", least=effort.looks[0]) for run in runs]
        tests = [SequentialTest[PairedSamples](each, effort, second) for each in samples]
        if not tests:
            raise waiting[0].why_empty()
        take_groups(tests, effort, start, report, begun_s)
    return [c for test in tests for c in test.comparisons()]


class ProcessPair:
    """Two processes on one core, and the cases that each has found.

    Args:
        launches: baseline, candidate.
    """

    def __init__(
        self,
        launches: tuple[Launch, Launch],
        selection: Selection | bytes,
        rng: random.Random,
        cores: Sequence[int],
        report: Listener,
    ) -> None:
        self.rng = rng
        report(ProgressEvent("starting a pair of processes"))
        # Don't use `rng`, whose seed is the same in each comparison: two comparisons at once would share a core again
        # and again.
        core = random.choice(cores) if cores else None
        self.partners = [Partner(launch, selection, core) for launch in launches]
        found: dict[int, Listing] = {}
        try:
            for i in rng.sample((0, 1), 2):
                found[i] = self.partners[i].listing()
        except BaseException:
            self.close()
            raise
        self.listings = [found[0], found[1]]

    def renew(self) -> None:
        """The next case gets new processes: one that has prepared other cases is no match for a new one."""
        for partner in self.partners:
            partner.renew()

    def close(self) -> None:
        for partner in self.partners:
            partner.close()

    def why_empty(self) -> UsageError:
        """Why neither has found a case."""
        failure = next((failure for listing in self.listings for failure in listing.broken), None)
        return UsageError(failure.message, hint=failure.advice) if failure else UsageError("there are no cases")


@dataclass
class ProcessPairSamples(PairedSamples):
    """The results of pairs of processes for one case: each pair is a group of one block."""

    least: int = 0
    """Fewer pairs than these say nothing: what varies from process to process would be taken for a change."""

    def comparisons(self, alpha: float = ALPHA) -> list[Comparison]:
        found, pairs = super().comparisons(alpha), len(self.groups)
        if self.failures or pairs >= self.least:
            return found
        why = f"there was time for {plural(pairs, 'pair')} of processes, and {self.least} are the least"
        return [replace(c, verdict="unclear", why=why) if c.method == "process pairs" else c for c in found]

    def take(
        self,
        pool: ProcessPair,
        stage: Stage[Any],
        say: Callable[[str], None],
    ) -> None:
        """One pair more, of one block whatever the effort is."""
        for i, listing in enumerate(pool.listings):
            if self.paired_run.case not in listing.cases:
                self.failures[i] = listing.why_missing(pool.partners[i].label)
                return
        try:
            self._take_turns(pool, say)
        except Failed as failed:
            self.failures[self.side_in(failed.failure.stage)] = failed.failure
            pool.renew()

    def _take_turns(self, pair: ProcessPair, say: Callable[[str], None]) -> None:
        (_, limit_s), ready = pair.listings[0].cases[self.paired_run.case], dict[int, WarmCase]()
        for i in pair.rng.sample((0, 1), 2):
            one, (number, _) = pair.partners[i], pair.listings[i].cases[self.paired_run.case]
            ready[i] = one.ask(prepare_case, (one.source, number), limit_s, say)
        facts = [ready[i].facts for i in (0, 1)]
        # The same in all pairs.
        iterations = self.groups[0].answer.iterations if self.groups else ready[0].iterations
        call_ns = max(each.call_ns for each in ready.values())
        say("rounds")
        begun = noise.start()
        ns = _take_samples(pair, facts, iterations, call_ns, limit_s)
        seen = noise.finish(begun)
        why = "" if self.groups else _compare_outputs(pair, facts[1], limit_s)
        environments = [listing.environment for listing in pair.listings if listing.environment]
        environment = Json(dataclasses.asdict(common(*environments)))
        answer = PairedAnswer(facts, iterations, ns, signature=ready[0].signature, noise=seen, environment=environment)
        self.add((0, 1), answer)
        if why:
            self.notes = (Remark("outputs-not-compared", "warning", why), *self.notes)


def _take_samples(
    pair: ProcessPair, facts: Sequence[SideFacts], iterations: int, call_ns: int, limit_s: float | None
) -> np.ndarray:
    """int64[1, round, side], in nanoseconds. `facts` gets what was compiled in them."""

    def sample(i: int) -> int:
        # Wait for each answer before asking the other one: two that compute at once would share the core.
        ns, facts[i].compiles = pair.partners[i].ask(sample_case, iterations, limit_s)
        return ns

    unused = UNUSED_ROUNDS if call_ns <= ROUNDS[1][0] else 0
    rounds = unused + next(rounds for limit_ns, rounds in ROUNDS if call_ns <= limit_ns)
    taken = [take_round([partial(sample, i) for i in (0, 1)], pair.rng) for _ in range(rounds)]
    return np.array([taken[unused:]], np.int64)


def _compare_outputs(pair: ProcessPair, candidate: SideFacts, limit_s: float | None) -> str:
    """Notes how far the outputs agree; returns why they were not compared, if so."""
    try:
        expected, actual = (partner.ask(give_outputs, None, limit_s) for partner in pair.partners)
    except Failed as failed:
        pair.renew()
        return f"the outputs were not compared, because {failed.failure.message}"
    candidate.agreement = compare(tuple(actual), tuple(expected), against="baseline")
    return ""


def common(one: Environment, other: Environment) -> Environment:
    """The values that both share; None if they differ, as their versions of JAX do."""
    differing = {name: None for name in ("jax", "jaxlib", "numpy") if getattr(one, name) != getattr(other, name)}
    return replace(other, **differing)
