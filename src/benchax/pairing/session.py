"""Takes paired runs to their verdicts: fresh processes one after the other, looks in between, and a second, independent
measurement of every change before it is called one.

Each process runs all paired runs that still need it, in random order: what is undecided beside what is measured again.
Looks come after 2, 3, 4, 6 and 8 processes (6 to 24 blocks), and where less than 5 % is to be seen up to 24: with one
process what varies from process to process could not be told from a change.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from benchax.comparing.judging import confirmed
from benchax.executors.pool import Pool
from benchax.model import Comparison, Metric
from benchax.pairing.paired_run import PairedRun, PairedSamples
from benchax.stats.verdicts import ALPHA, CONFIRMING_ALPHA, SAME_WITHIN

LOOKS = (2, 3, 4, 6, 8)
"""After how many processes."""
FINE_LOOKS = (*LOOKS, 12, 16, 24)
"""Where "same" is to mean less than 5 %."""
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
    resolution: float = SAME_WITHIN
    """ "same" means within this share; what has a name is in proportion (`stats.verdicts.least_change`)."""
    skips_equal: bool = True
    """Programs that are one are not timed. False: to see how often unchanged code is called changed."""


@dataclass(frozen=True)
class SessionStep:
    """How far a session is, for a progress display."""

    process: int
    case: str
    stage: str
    undecided: int
    total: int
    """0 where something is prepared: `stage` then says in words what."""
    is_lasting: bool = False
    """Is `stage` a sentence that stays, such as that a file cannot be imported?"""


def effort_for(
    resolution: float = SAME_WITHIN, max_time_s: float | None = None, metrics: frozenset[Metric] = RUN
) -> Effort:
    """How long a comparison goes on that is to tell changes of `resolution` from none."""
    looks = LOOKS if resolution >= SAME_WITHIN else FINE_LOOKS
    return Effort(looks, max_time_s, metrics=metrics, resolution=resolution)


PRELOAD = ("benchax.measuring.paired", "scipy.linalg")
"""JAX imports the latter when it first lowers an exported program: 180 ms in each process."""

CONFIRMING = Effort(alpha=CONFIRMING_ALPHA, blocks=2)
"""Of a change: a measurement of its own."""
Progress = Callable[[SessionStep], None]
Start = Callable[[], AbstractContextManager[Pool]]


def quiet(step: SessionStep) -> None:
    """No progress."""


@contextmanager
def fresh_processes() -> Generator[Start, None, None]:
    """What starts one process after the other, each for as long as its context lasts.

    They are forks of one process that has imported JAX and run nothing of it: 10 ms in place of 1 s. Backend,
    executables and buffers are each one's own, behind paddings of random size. Forks scatter as far as processes of a
    new Python do, and those of one parent do not lean to one side (benchmarks/forks.py).
    """
    with Pool(preload=PRELOAD) as pool:

        @contextmanager
        def start() -> Generator[Pool, None, None]:
            try:
                yield pool
            finally:
                pool.renew()

        yield start


@contextmanager
def shared_programs() -> Generator[Path | None, None, None]:
    """A folder of executables; None where there is no room for one: then each process compiles its own."""
    try:
        folder = TemporaryDirectory(prefix="benchax-programs-")
    except OSError:
        yield None
        return
    with folder:
        yield Path(folder.name)


@dataclass
class Stage:
    """One measurement of a paired run."""

    taken: PairedSamples
    effort: Effort
    processes: int = 0

    def take(self, pool: Pool, say: Callable[[str], None]) -> None:
        """One process more. Who needs more than two takes its time: starting and building take longer than rounds."""
        patience = 1 if self.processes < self.effort.looks[0] else PATIENCE
        effort = self.effort
        skips_equal = effort.skips_equal and not self.processes  # what the first found to differ does so in the others
        self.taken.take(pool, self.processes, effort.blocks, say, patience, skips_equal)
        self.processes += 1

    def is_done(self, is_over: bool) -> bool:
        """Is there nothing to be learned from another process, or no time for one?"""
        if not self.processes:
            return False
        return is_over or self.processes >= self.effort.looks[-1] or is_decided(self.taken, self.processes, self.effort)


class SequentialTest:
    """A paired run on its way to a verdict."""

    def __init__(self, paired_run: PairedRun, effort: Effort, programs: Path | None = None) -> None:
        self.first = Stage(PairedSamples(paired_run, resolution=effort.resolution, programs=programs), effort)
        self.second: Stage | None = None
        """Of a change."""

    def due(self, is_over: bool) -> Stage | None:
        """What is to be gone on with. A change is measured a second time whatever the hour."""
        if self.second is None:
            if not self.first.is_done(is_over):
                return self.first
            taken, effort = self.first.taken, self.first.effort
            if not any(is_change(c, effort.metrics) for c in (*taken.comparisons(), *taken.rivals())):
                return None
            known = dict(taken.failures)  # who ran into a limit once need not do so again
            again = PairedSamples(
                taken.paired_run, failures=known, resolution=effort.resolution, programs=taken.programs
            )
            self.second, taken.second = Stage(again, confirming(effort)), again
        return None if self.second.is_done(False) else self.second

    def comparisons(self) -> list[Comparison]:
        """Of the changes that the effort is about only those that a second measurement confirms keep their names."""
        found, metrics = self.first.taken.comparisons(), self.first.effort.metrics
        if self.second is not None:
            found = confirmed_by(found, self.second.taken, metrics)
        return unasked(found, metrics)


def is_decided(taken: PairedSamples, processes: int, effort: Effort) -> bool:
    """Is there nothing to be learned from another process?"""
    if taken.is_same_program:
        return True
    judged = [c for c in taken.comparisons(effort.alpha) if c.metric in effort.metrics and c.failure is None]
    if judged and processes not in effort.looks:
        return False
    return all(c.verdict != "unclear" for c in (*judged, *taken.rivals(effort.alpha)))


def compared(
    paired_runs: Sequence[PairedRun],
    effort: Effort,
    progress: Progress = quiet,
    start: Start | None = None,
) -> list[list[Comparison]]:
    """The comparisons of each paired run."""
    return [found for _, found in settled(paired_runs, effort, progress, start)]


def settled(
    paired_runs: Sequence[PairedRun],
    effort: Effort,
    progress: Progress = quiet,
    start: Start | None = None,
    clock: Callable[[], float] = monotonic,
) -> list[tuple[PairedSamples, list[Comparison]]]:
    """(evidence, comparisons) of each paired run, in their order.

    Args:
        start: gives a fresh process for as long as its context lasts; default: `fresh_processes`.

    Raises:
        KeyboardInterrupt: passes through, and leaves no process.
    """
    begun, rng = clock(), random.Random(0)
    with ExitStack() as stack:
        programs = None if "compile" in effort.metrics else stack.enter_context(shared_programs())
        tests = on_their_way = [
            SequentialTest(paired_run, effort, programs and programs / str(i))
            for i, paired_run in enumerate(paired_runs)
        ]
        begin = start or stack.enter_context(fresh_processes())
        for process in count():
            is_over = effort.max_time_s is not None and clock() - begun > effort.max_time_s
            due = [(test, part) for test in on_their_way if (part := test.due(is_over)) is not None]
            if not due:
                break
            on_their_way = [test for test, _ in due]
            with begin() as pool:
                for _, part in rng.sample(due, len(due)):
                    label = part.taken.paired_run.case.label

                    def say(stage: str, label: str = label, left: int = len(due), process: int = process) -> None:
                        progress(SessionStep(process, label, stage, left, len(tests)))

                    part.take(pool, say)
    return [(test.first.taken, test.comparisons()) for test in tests]


def unasked(found: Sequence[Comparison], metrics: frozenset[Metric]) -> list[Comparison]:
    """Times that the session was not about were looked at once, and confirmed by nothing: no change has a name."""
    why = "seen once and not confirmed: give it a limit to have it measured"
    return [
        replace(c, verdict="unclear", why=why)
        if c.method != "counted" and c.metric not in metrics and c.verdict in ("slower", "faster")
        else c
        for c in found
    ]


def confirming(first: Effort) -> Effort:
    """A second measurement of what `first` saw. Small changes take it as many processes and blocks as they took the
    first one. The first two builds of a process are not compared, so compiling needs a third block."""
    is_fine = first.resolution < SAME_WITHIN
    looks = FINE_LOOKS if is_fine else CONFIRMING.looks
    blocks = first.blocks if is_fine or "compile" in first.metrics else CONFIRMING.blocks
    return replace(first, looks=looks, max_time_s=None, alpha=CONFIRMING.alpha, blocks=blocks)


def is_change(comparison: Comparison, metrics: frozenset[Metric]) -> bool:
    return comparison.metric in metrics and comparison.verdict in ("slower", "faster")


def confirmed_by(first: Sequence[Comparison], second: PairedSamples, metrics: frozenset[Metric]) -> list[Comparison]:
    """`first`, its changes checked against new data."""
    again = {(c.metric, c.candidate.label): c for c in second.comparisons(CONFIRMING_ALPHA)}
    return [
        confirmed(c, again[c.metric, c.candidate.label])
        if is_change(c, metrics) and (c.metric, c.candidate.label) in again
        else c
        for c in first
    ]
