"""Readings of further processes: what one process measures, another one does not repeat.

Two processes of one program differ by where its code, its data and its threads lie, and by the moment; samples of one
of them know nothing of that. So a case is measured in full once, and then sampled in further processes, by the same
timers: forks of one warm process, which stay for the next case. They read the timers' programs that the first process
has compiled, and the function as the first of them compiled it: from the folder of kept programs (`jax_settings.py`).

A fork inherits the addresses of the process that it is forked from, so each job begins by moving what comes after it
(Curtsinger & Berger, Stabilizer, ASPLOS 2013, do so all the time).
"""

from __future__ import annotations

import mmap
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from benchax.case import Case
from benchax.errors import UsageError
from benchax.machine.pace import note_pace
from benchax.measuring import timers
from benchax.measuring.engine import measure
from benchax.measuring.jax_settings import keep_programs
from benchax.measuring.record import Progress
from benchax.measuring.sampler import TimerSampler
from benchax.measuring.stopping import share_time
from benchax.model import OTHER_PROCESSES, Absent, Failure, Measurement, Options
from benchax.workers import pickling
from benchax.workers.call_limits import CallLimits, limits_of
from benchax.workers.isolated import Executor, Isolated
from benchax.workers.pool import Pool, shared_pool
from benchax.workers.task import Say, task

STAGE = "processes"
"""As progress is told of it."""


class Replicated:
    """The contract is that of `Executor`.

    Args:
        first: measures the case in full, and is one of the processes.
        pool: of the others; default: the one of this program.
    """

    def __init__(self, first: Executor, pool: Pool | None = None) -> None:
        self.first = first
        self._pool = pool

    def run(self, case: Case, options: Options, *, run_id: str, progress: Progress) -> Measurement:
        try:
            pickling.pack_argument(case, f"case {case.id.label!r}")
        except UsageError as error:  # before anything is measured: alone, it has all the time for sampling
            m = self.first.run(case, replace(options, processes=1), run_id=run_id, progress=progress)
            return _alone(m, error.problem)
        m = self.first.run(case, options, run_id=run_id, progress=progress)
        if not _wants_others(m):
            return m
        # Nothing of a further process is stored, so it needn't look for what is.
        replica = Replica(replace(case, find_program=None), _options_of_others(m, options), run_id)
        try:
            return _gather(m, self._sample_others(replica, m.options.processes - 1, limits_of(options), progress))
        except OSError as error:
            alone = replace(m, options=replace(m.options, processes=1))
            return _alone(alone, f"they could not be started: {error}")

    def _sample_others(
        self, replica: Replica, count: int, limits: CallLimits, progress: Progress
    ) -> list[Measurement | Failure]:
        pool = self._pool or shared_pool()
        return pool.call_in_each(
            count,
            sample_case,
            replica,
            limits,
            name=f"case {replica.case.id.label!r}",
            shows_output=False,  # the first process has shown it
            on_message=lambda said: progress(STAGE, 0.0),
            beside=int(isinstance(self.first, Isolated)),  # the first worker has measured it in full already
        )


def _options_of_others(m: Measurement, options: Options) -> Options:
    return replace(
        share_time(replace(m.options, processes=options.processes), m.options.processes),
        timer=",".join(timers.names_for_others(options.timer, m.samples)),
        stages="samples",
        verify="off",
        memory=False,
        store="off",
        cold_process=False,
        isolate=False,
    )


@dataclass(frozen=True)
class Replica:
    """What a further process is asked for."""

    case: Case
    options: Options
    run_id: str


@task
def sample_case(replica: Replica, say: Say) -> Measurement:
    """The samples, in a row that has hardly anything else."""
    moved = _move_memory()
    sampler = TimerSampler(replica.case, replica.options, examines=False)
    with keep_programs():
        m = measure(
            replica.case,
            replica.options,
            run_id=replica.run_id,
            progress=lambda stage, share: say(stage, share=share),
            sampler=sampler,
        )
    del moved  # held until here, else the same memory would have been given out again
    return m


def _move_memory() -> list[Any]:
    """Takes some memory of random size from both places that it comes from, so that what follows lies elsewhere."""
    rng = random.SystemRandom()
    return [bytearray(rng.randrange(16, 4096)), mmap.mmap(-1, mmap.PAGESIZE * rng.randrange(1, 512))]


def _gather(m: Measurement, answers: Sequence[Measurement | Failure]) -> Measurement:
    """`m` with the samples of the processes that gave some; what went wrong in the others is said."""
    samples, problem = list(m.samples), ""
    for process, answer in enumerate(answers, start=1):
        failure = answer if isinstance(answer, Failure) else answer.failure
        if isinstance(answer, Failure) or failure is not None:
            problem = problem or (f"{failure.kind} in {failure.stage}: {failure.message}" if failure else "")
            continue
        samples += [replace(s, process=process) for s in answer.samples]
    others = {s.process for s in samples} - {0}
    if not others:
        return _alone(replace(m, options=replace(m.options, processes=1)), f"they failed ({problem})")
    absent = tuple(a for a in m.not_measured if a.what != OTHER_PROCESSES)
    if problem:
        missing = f"{len(answers) - len(others)} of {len(answers)} further ones failed ({problem})"
        absent += (Absent(OTHER_PROCESSES, missing),)
    noise = replace(m.noise, pace_scatter=note_pace(m.environment))
    return replace(m, samples=tuple(samples), not_measured=absent, noise=noise)


def _wants_others(m: Measurement) -> bool:
    return m.failure is None and bool(m.samples) and m.options.processes > 1


def _alone(m: Measurement, why: str) -> Measurement:
    absent = tuple(replace(a, why=why) if a.what == OTHER_PROCESSES else a for a in m.not_measured)
    return replace(m, not_measured=absent)
