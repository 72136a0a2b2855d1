"""Takes contests to their verdicts: fresh processes one after the other, looks in between, and a second, independent
measurement of every change before it is called one.

Each process runs all contests that are still undecided, in random order. Looks come after 2, 3, 4, 6 and 8 processes
(6 to 24 blocks): with one process the luck of that process could not be told from a change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from time import monotonic

from benchax.comparing.judging import confirmed
from benchax.executors.pool import Pool
from benchax.model import Comparison, Metric
from benchax.pairing.contest import Contest, Taken
from benchax.stats.verdicts import ALPHA, CONFIRMING_ALPHA

LOOKS = (2, 3, 4, 6, 8)
"""After how many processes."""


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


def run(
    contests: Sequence[Contest],
    effort: Effort,
    progress: Progress = quiet,
    start: Callable[[], AbstractContextManager[Pool]] = new_process,
    clock: Callable[[], float] = monotonic,
) -> list[Taken]:
    """Evidence about each contest, in their order: enough for a verdict, or all that `effort` allows.

    Raises:
        KeyboardInterrupt: passes through, and leaves no process.
    """
    begun, dice = clock(), random.Random(0)
    taken = [Taken(contest) for contest in contests]
    undecided = list(range(len(taken)))
    for process in range(effort.looks[-1]):
        is_over = effort.max_time_s is not None and clock() - begun > effort.max_time_s
        if not undecided or (is_over and process):
            break
        with start() as pool:
            for i in dice.sample(undecided, len(undecided)):
                label, left = contests[i].case.label, len(undecided)

                def say(stage: str, label: str = label, left: int = left, process: int = process) -> None:
                    progress(Step(process, label, stage, left, len(taken)))

                taken[i].take(pool, process, effort.blocks, say)
        undecided = [i for i in undecided if not is_decided(taken[i], process + 1, effort)]
    return taken


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
) -> list[tuple[Taken, list[Comparison]]]:
    """(evidence, comparisons) of each contest. Of the changes that `effort` is about only those that a second
    measurement confirms keep their names."""
    first = run(contests, effort, progress, start)
    found = [taken.comparisons() for taken in first]
    changed = [i for i, each in enumerate(found) if any(is_change(c, effort.metrics) for c in each)]
    again = run([contests[i] for i in changed], confirming(effort.metrics), progress, start)
    for i, second in zip(changed, again, strict=True):
        found[i] = confirmed_by(found[i], second, effort.metrics)
    return [(taken, unasked(each, effort.metrics)) for taken, each in zip(first, found, strict=True)]


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
