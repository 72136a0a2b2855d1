"""Measures a case in as many processes as it needs: one in full, and further ones that only sample.

Two processes of one program differ by the addresses of code and data, by the cores of their threads, and by the moment.
The samples of one process do not show that. So a case is measured in full once. While the interval for a later run is
wider than requested, the same timers sample it in one more process: a fork of a warm process, which stays for the next
case. It reads the timers' programs, which the first process has kept.

A fork inherits the addresses of the process that it is forked from, so each job begins by moving what comes after it
(Curtsinger & Berger, Stabilizer, ASPLOS 2013, do so all the time).
"""

from __future__ import annotations

import mmap
import random
from dataclasses import dataclass, replace
from typing import Any, cast

from benchax.case import Case
from benchax.errors import UsageError
from benchax.machine.pace import note_pace
from benchax.measuring import remarks, timers
from benchax.measuring.engine import TimerSampler, measure
from benchax.measuring.jax_settings import keep_programs
from benchax.measuring.record import Progress
from benchax.measuring.sampling import is_known_well, share_time
from benchax.model import OTHER_PROCESSES, Absent, Failure, Measurement, Options
from benchax.workers import pickling
from benchax.workers.call_limits import CallLimits, limits_of
from benchax.workers.isolated import Executor, Isolated
from benchax.workers.pool import Pool, shared_pool
from benchax.workers.task import Say, task

STAGE = "processes"
"""The name of this stage in progress events."""


class Replicated:
    """The contract is that of `Executor`. The row after each process goes to `case.listen`, under "row".

    Args:
        first: measures the case in full, and is one of the processes.
        pool: of the others; default: the one of this program.
    """

    def __init__(self, first: Executor, pool: Pool | None = None) -> None:
        self.first = first
        self._pool = pool

    def run(self, case: Case, options: Options, *, run_id: str, progress: Progress) -> Measurement:
        try:
            sealed = pickling.seal(case, f"case {case.id.label!r}")
        except UsageError as error:  # before anything is measured: alone, it has all the time for sampling
            m = self.first.run(case, replace(options, processes=1), run_id=run_id, progress=progress)
            return _alone(m, error.problem)
        m = self.first.run(case, options, run_id=run_id, progress=progress)
        if m.failure or not m.samples or m.options.processes == 1:
            return m
        m = replace(m, noise=replace(m.noise, pace_scatter=note_pace(m.environment)))
        request = SampleRequest(sealed, _options_of_others(m, options), run_id)
        return self._add_processes(m, case, request, options, progress)

    def _add_processes(
        self, m: Measurement, case: Case, request: SampleRequest, options: Options, progress: Progress
    ) -> Measurement:
        most, problem, taken = m.options.processes, "", 1
        timers_of_others = request.options.timer.split(",")

        def is_enough() -> bool:
            return not options.processes and all(
                is_known_well(m, timer, options.relative_width) for timer in timers_of_others
            )

        for process in range(1, most):
            if is_enough():
                break
            if case.listen is not None:
                case.listen("row", m)
            try:
                answer = self._sample(process, request, limits_of(options), progress)
            except OSError as error:
                problem = problem or f"no further process could be started: {error}"
                break
            failure = answer if isinstance(answer, Failure) else answer.failure
            if isinstance(answer, Failure) or failure is not None:
                problem = problem or (f"{failure.kind} in {failure.stage}: {failure.message}" if failure else "")
                continue
            taken += 1
            m = replace(m, samples=(*m.samples, *(replace(s, process=process) for s in answer.samples)))
        m = remarks.renew(replace(m, options=replace(m.options, processes=taken)))
        if problem:
            return _alone(m, problem)
        return replace(m, not_measured=tuple(a for a in m.not_measured if a.what != OTHER_PROCESSES))

    def _sample(
        self, process: int, request: SampleRequest, limits: CallLimits, progress: Progress
    ) -> Measurement | Failure:
        return (self._pool or shared_pool()).call(
            sample_case,
            request,
            limits,
            shows_output=False,  # the first process has shown it
            on_message=lambda message: progress(STAGE, 0.0),
            # The first worker has measured the case in full already, if the case is isolated.
            worker=process - 1 + int(isinstance(self.first, Isolated)),
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
class SampleRequest:
    """The request to a further process."""

    case: Case | pickling.Sealed
    """Pickled once, before the first process has called the function; a worker gets the case itself."""
    options: Options
    run_id: str


@task
def sample_case(request: SampleRequest, say: Say) -> Measurement:
    """Takes the samples, and returns them in a row without other stages."""
    moved = _move_memory()
    case = cast("Case", request.case)
    sampler = TimerSampler(case, request.options, examines=False)
    with keep_programs():
        m = measure(
            case,
            request.options,
            run_id=request.run_id,
            progress=lambda stage, share: say(stage, share=share),
            sampler=sampler,
        )
    del moved  # held until here, else the same memory would have been given out again
    return m


def _move_memory() -> list[Any]:
    """Takes memory of random size from both of its sources, so that later allocations get other addresses."""
    rng = random.SystemRandom()
    return [bytearray(rng.randrange(16, 4096)), mmap.mmap(-1, mmap.PAGESIZE * rng.randrange(1, 512))]


def _alone(m: Measurement, why: str) -> Measurement:
    """`m`, which says why it has no further processes, or fewer than it needs."""
    absent = tuple(a for a in m.not_measured if a.what != OTHER_PROCESSES)
    return replace(m, not_measured=(*absent, Absent(OTHER_PROCESSES, why)))
