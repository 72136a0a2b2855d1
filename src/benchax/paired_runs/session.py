"""Takes paired runs to their verdicts: fresh processes one after the other, until each sequential test has ended.

Each process runs all paired runs that still need it, in random order: undecided runs together with runs that are
measured again (`comparing/sequential.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import cache
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from benchax.comparing.sequential import Effort, SequentialTest
from benchax.environment import capture
from benchax.model import Comparison
from benchax.paired_runs.paired_run import PairedRun, PairedSamples
from benchax.progress import Listener, ProgressEvent, quiet
from benchax.reporting.comparisons import interval, verdict_with_reason
from benchax.workers.pool import Pool

PRELOAD = ("benchax.measuring.paired", "scipy.linalg")
"""JAX imports the latter when it first lowers an exported program: 180 ms in each process."""

Start = Callable[[], AbstractContextManager[Pool]]


@contextmanager
def fresh_processes(jax_config: Mapping[str, Any] | None = None) -> Generator[Start, None, None]:
    """Yields a function that starts one process after the other, each for as long as its context lasts.

    Args:
        jax_config: settings of JAX for the processes, on top of the settings of this process.

    They are forks of one process that has imported JAX and run nothing of it: 10 ms instead of 1 s. Each process has
    its own backend, executables and buffers, behind paddings of random size. Forks scatter as much as processes of a
    new Python. Forks of one parent do not deviate in a common direction (benchmarks/forks.py).
    """
    with Pool(preload=PRELOAD, jax_config=jax_config) as pool:

        @contextmanager
        def start() -> Generator[Pool, None, None]:
            try:
                yield pool
            finally:
                pool.renew()

        yield start


def compare_runs(
    paired_runs: Sequence[PairedRun], effort: Effort, report: Listener = quiet, start: Start | None = None
) -> list[list[Comparison]]:
    """The comparisons of each paired run."""
    return [test.comparisons() for test in run_tests(paired_runs, effort, report, start)]


def run_tests(
    paired_runs: Sequence[PairedRun],
    effort: Effort,
    report: Listener = quiet,
    start: Start | None = None,
    clock: Callable[[], float] = monotonic,
) -> list[SequentialTest[PairedSamples]]:
    """The test of each paired run, in their order, when all of them have ended.

    Args:
        start: gives a fresh process for as long as its context lasts; default: `fresh_processes`.

    Raises:
        KeyboardInterrupt: passes through, and leaves no process.
    """
    begun_s = clock()
    with ExitStack() as stack:
        programs: Path | None = None
        if "compile" not in effort.metrics:
            with suppress(OSError):  # without room for a folder of executables, each process compiles its own
                programs = Path(stack.enter_context(TemporaryDirectory(prefix="benchax-programs-")))
        here = cache(lambda: capture(with_jax=False))
        samples = [
            PairedSamples(run, resolution=effort.resolution, programs=programs and programs / str(i), here=here)
            for i, run in enumerate(paired_runs)
        ]
        tests = [SequentialTest(each, effort) for each in samples]
        take_groups(tests, effort, start or stack.enter_context(fresh_processes()), report, begun_s, clock)
    return tests


def take_groups(
    tests: Sequence[SequentialTest[PairedSamples]],
    effort: Effort,
    start: Callable[[], AbstractContextManager[Any]],
    report: Listener,
    begun_s: float,
    clock: Callable[[], float] = monotonic,
) -> None:
    """Takes groups of samples until all tests have ended, one group of each that is due in each process.

    Args:
        start: as for `run_tests`; gives what `PairedSamples.take` takes a group from.
        begun_s: from then on counts the limit of time.
    """
    rng, told = random.Random(0), set[int]()

    def time_gone() -> float:
        """The share of the time limit that is over; 0 without one."""
        if effort.max_time_s is None:
            return 0.0
        return (clock() - begun_s) / effort.max_time_s if effort.max_time_s > 0 else 1.0

    for process in count():
        # Take at least one group, however short the limit is.
        gone = time_gone() if process else float(effort.max_time_s is not None and effort.max_time_s <= 0)
        due = [stage for test in tests if (stage := test.due(gone)) is not None]
        if not due:
            break
        for i, test in enumerate(tests):
            if test.has_ended and i not in told:
                told.add(i)
                found = next(c for c in test.comparisons() if c.metric == "run")
                words = (found.case.label, interval(found), verdict_with_reason(found))
                report(ProgressEvent(found.case.label, ended="  ".join(filter(None, words))))
        # The number of processes still needed is unknown, so there is no share of the whole to report.
        elapsed_s, most = clock() - begun_s, max(test.most_groups_left for test in tests)
        lefts_s = [most * elapsed_s / process] if process else []
        lefts_s += [] if effort.max_time_s is None else [max(0.0, effort.max_time_s - elapsed_s)]
        item = f"process {process + 1}: {len(due)} of {len(tests)} undecided"
        event = ProgressEvent(item, left_s=min(lefts_s, default=None), is_most=True)
        with start() as workers:
            for i, stage in enumerate(rng.sample(due, len(due))):
                # Many cases in one process can exceed the limit, but a process that has started takes at least one.
                if i and time_gone() >= 1:
                    break
                label = stage.samples.paired_run.case.label
                stage.samples.take(
                    workers,
                    stage,
                    lambda doing, event=event, label=label: report(replace(event, doing=f"{label} · {doing}")),
                )
                stage.groups += 1
