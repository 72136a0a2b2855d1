"""Takes contests to their verdicts: fresh processes one after the other, looks in between, and a second, independent
measurement of every change before it is called one.

Each process runs all contests that still need it, in random order: what is undecided beside what is measured again.
Looks come after 2, 3, 4, 6 and 8 processes (6 to 24 blocks): with one process the luck of that process could not be
told from a change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import count
from time import monotonic

from benchax.comparing.judging import confirmed
from benchax.executors.pool import Pool
from benchax.model import Comparison, Metric
from benchax.pairing.contest import Contest, Taken
from benchax.stats.verdicts import ALPHA, CONFIRMING_ALPHA

LOOKS = (2, 3, 4, 6, 8)
"""After how many processes."""
PATIENCE = 3
"""Times as long as in the first processes do the rounds of later ones take."""

RUN: frozenset[Metric] = frozenset({"run"})


@dataclass(frozen=True)
class Effort:
    """How long to go on."""

    looks: tuple[int, ...] = LOOKS
    """The last one is the end."""
    max_time_s: float | None = None
    """No process is begun after this long."""
    alpha: float = ALPHA
    blocks: int = 3
    """Of each process."""
    metrics: frozenset[Metric] = RUN
    """It goes on until these are clear, and confirms their changes: run times, and times to compile if asked for."""


@dataclass(frozen=True)
class Step:
    """How far a session is, for a progress display."""

    process: int
    case: str
    stage: str
    undecided: int
    total: int


CONFIRMING = Effort(alpha=CONFIRMING_ALPHA, blocks=2)
"""Of a change: a measurement of its own."""
Progress = Callable[[Step], None]


def quiet(step: Step) -> None:
    """No progress."""


def new_process() -> AbstractContextManager[Pool]:
    """Workers of a new Python, not forks of one another: those would share the luck of their parent."""
    return Pool(start="spawn")


@dataclass
class Part:
    """One measurement of a contest."""

    taken: Taken
    effort: Effort
    processes: int = 0

    def take(self, pool: Pool, say: Callable[[str], None]) -> None:
        """One process more. Who needs more than two takes its time: starting and building take longer than rounds."""
        patience = 1 if self.processes < self.effort.looks[0] else PATIENCE
        self.taken.take(pool, self.processes, self.effort.blocks, say, patience)
        self.processes += 1

    def is_done(self, is_over: bool) -> bool:
        """Is there nothing to be learned from another process, or no time for one?"""
        if not self.processes:
            return False
        return is_over or self.processes >= self.effort.looks[-1] or is_decided(self.taken, self.processes, self.effort)


class Course:
    """A contest on its way to a verdict."""

    def __init__(self, contest: Contest, effort: Effort) -> None:
        self.first = Part(Taken(contest), effort)
        self.second: Part | None = None
        """Of a change."""

    def due(self, is_over: bool) -> Part | None:
        """What is to be gone on with. A change is measured a second time whatever the hour."""
        if self.second is None:
            if not self.first.is_done(is_over):
                return self.first
            metrics = self.first.effort.metrics
            if not any(is_change(c, metrics) for c in self.first.taken.comparisons()):
                return None
            known = dict(self.first.taken.failures)  # who ran into a limit once need not do so again
            self.second = Part(Taken(self.first.taken.contest, failures=known), confirming(metrics))
        return None if self.second.is_done(False) else self.second

    def comparisons(self) -> list[Comparison]:
        """Of the changes that the effort is about only those that a second measurement confirms keep their names."""
        found, metrics = self.first.taken.comparisons(), self.first.effort.metrics
        if self.second is not None:
            found = confirmed_by(found, self.second.taken, metrics)
        return unasked(found, metrics)


def is_decided(taken: Taken, processes: int, effort: Effort) -> bool:
    """Is there nothing to be learned from another process?"""
    judged = [c for c in taken.comparisons(effort.alpha) if c.metric in effort.metrics and c.failure is None]
    return not judged or (processes in effort.looks and all(c.verdict != "unclear" for c in judged))


def compared(
    contests: Sequence[Contest],
    effort: Effort,
    progress: Progress = quiet,
    start: Callable[[], AbstractContextManager[Pool]] = new_process,
) -> list[list[Comparison]]:
    """The comparisons of each contest."""
    return [found for _, found in settled(contests, effort, progress, start)]


def settled(
    contests: Sequence[Contest],
    effort: Effort,
    progress: Progress = quiet,
    start: Callable[[], AbstractContextManager[Pool]] = new_process,
    clock: Callable[[], float] = monotonic,
) -> list[tuple[Taken, list[Comparison]]]:
    """(evidence, comparisons) of each contest, in their order.

    Raises:
        KeyboardInterrupt: passes through, and leaves no process.
    """
    begun, dice = clock(), random.Random(0)
    courses = [Course(contest, effort) for contest in contests]
    on_their_way = courses
    for process in count():
        is_over = effort.max_time_s is not None and clock() - begun > effort.max_time_s
        due = [(course, part) for course in on_their_way if (part := course.due(is_over)) is not None]
        if not due:
            break
        on_their_way = [course for course, _ in due]
        with start() as pool:
            for _, part in dice.sample(due, len(due)):
                label = part.taken.contest.case.label

                def say(stage: str, label: str = label, left: int = len(due), process: int = process) -> None:
                    progress(Step(process, label, stage, left, len(courses)))

                part.take(pool, say)
    return [(course.first.taken, course.comparisons()) for course in courses]


def unasked(found: Sequence[Comparison], metrics: frozenset[Metric]) -> list[Comparison]:
    """Times that the session was not about were looked at once, and confirmed by nothing: no change has a name."""
    why = "seen once and not confirmed: give it a limit to have it measured"
    return [
        replace(c, verdict="unclear", why=why)
        if c.method != "counted" and c.metric not in metrics and c.verdict in ("slower", "faster")
        else c
        for c in found
    ]


def confirming(metrics: frozenset[Metric]) -> Effort:
    """A second measurement. The first two builds of a process are not compared, so compiling needs a third block."""
    return replace(CONFIRMING, metrics=metrics, blocks=3 if "compile" in metrics else CONFIRMING.blocks)


def is_change(comparison: Comparison, metrics: frozenset[Metric]) -> bool:
    return comparison.metric in metrics and comparison.verdict in ("slower", "faster")


def confirmed_by(first: Sequence[Comparison], second: Taken, metrics: frozenset[Metric]) -> list[Comparison]:
    """`first`, its changes checked against new data."""
    again = {(c.metric, c.candidate.label): c for c in second.comparisons(CONFIRMING_ALPHA)}
    return [
        confirmed(c, again[c.metric, c.candidate.label])
        if is_change(c, metrics) and (c.metric, c.candidate.label) in again
        else c
        for c in first
    ]
