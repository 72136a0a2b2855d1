"""Runs a case here (`Inline`), in a worker process (`Isolated`), or in as many processes as it needs (`Replicated`).

In a worker, a call that never returns is killed, and a crash costs one row. The default is a warm worker that has done
other cases before. A cold one is a process in which JAX has done nothing yet, so that the stages are those of a cold
start.

Two processes of one program differ by the addresses of code and data, by the cores of their threads, and by the moment.
The samples of one process do not show that. So a case is measured in full once. While the interval for a later run is
wider than requested, the same timers sample it in one more process: a fork of a warm process, which stays for the next
case. It reads the timers' programs, which the first process has kept.

A fork inherits the addresses of its parent process. So each job begins by moving all later memory (Curtsinger & Berger,
Stabilizer, ASPLOS 2013, do so all the time). `executor_for(options)` chooses where a case runs.
"""

from __future__ import annotations

import mmap
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol, cast

from benchax.case import Case
from benchax.environment import capture, jax_facts
from benchax.errors import UsageError
from benchax.machine.noise import note_pace
from benchax.measuring import remarks, timers
from benchax.measuring.engine import TimerSampler, measure
from benchax.measuring.jax_settings import keep_programs
from benchax.measuring.prepare import release_programs
from benchax.measuring.record import Progress, Record, RemoteRow
from benchax.measuring.sampling import is_known_well, share_time
from benchax.model import OTHER_PROCESSES, Absent, Cold, Failure, Measurement, Options
from benchax.workers.pickling import Sealed, seal
from benchax.workers.task import CallLimits, Say, limits_of

if TYPE_CHECKING:
    from benchax.workers.pool import Pool


class Executor(Protocol):
    """The contract: turns a case into a row, wherever that happens, whatever the function does."""

    def run(self, case: Case, options: Options, *, run_id: str, progress: Progress) -> Measurement:
        """Never raises for what the user's function does; KeyboardInterrupt passes through and leaves no process."""
        ...


@dataclass(frozen=True)
class Inline:
    """Runs a case in this process: nothing to start, nothing to send, and a crash takes the session with it."""

    def run(self, case: Case, options: Options, *, run_id: str, progress: Progress) -> Measurement:
        return measure(case, options, run_id=run_id, progress=progress)


class Isolated:
    """Runs a case in a worker process.

    Args:
        cold: each case in a new process, in which JAX has done nothing yet.
        pool: default: the one of this program.
    """

    def __init__(self, cold: bool = False, pool: Pool | None = None) -> None:
        self.cold: Cold = "process" if cold else "function"
        self._pool = pool

    @property
    def pool(self) -> Pool:
        from benchax.workers.pool import shared_pool  # noqa: PLC0415  # with all that starts processes

        return self._pool or shared_pool(warm=self.cold != "process")

    def run(self, case: Case, options: Options, *, run_id: str, progress: Progress) -> Measurement:
        remote = RemoteRow(progress)
        answer = self.pool.call(
            measure_case,
            (case, options, run_id, self.cold),
            limits_of(options),
            name=f"case {case.id.label!r}",
            on_message=remote.listen,
        )
        if isinstance(answer, Failure):
            # Don't ask JAX here: that would start a backend in a process without one.
            environment = replace(capture(case.folder, with_jax=False), **remote.known.pop("environment", {}))
            return remote.row(case.id, environment, options, run_id, answer)
        m = with_program(answer)
        if case.find_earlier_runs and m.earlier_runs.source:
            m = replace(m, earlier_runs=case.find_earlier_runs(m.earlier_runs.source, m.environment.fingerprint))
        return m


def measure_case(argument: tuple[Case, Options, str, Cold], say: Say) -> tuple[Measurement, bytes | None]:
    """Returns the row, and the bytes of its program, which rows do not hold on their way.

    Each step reports the new results of the row, and once its environment, when the backend has started. So the row of
    a case that is killed later has all of that.
    """
    case, options, run_id, cold = argument
    has_told = False

    def progress(stage: str, share: float) -> None:
        nonlocal has_told
        # Only after the inputs are made: asking JAX starts its backend.
        environment = {} if has_told or stage == "inputs" else {"environment": jax_facts()}
        has_told = has_told or bool(environment)
        say(stage, share=share, **environment, **record.news())

    record = Record(progress)
    m = measure(case, options, run_id=run_id, cold=cold, record=record)
    release_programs()
    return m, m.program.content if m.program else None


def with_program(answer: tuple[Measurement, bytes | None]) -> Measurement:
    """The row that `measure_case` gave, with the bytes of its program."""
    m, content = answer
    return m if m.program is None else replace(m, program=replace(m.program, content=content))


# ---- several processes -----------------------------------------------------------------------------------------------


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
            sealed = seal(case, f"case {case.id.label!r}")
        except UsageError as error:  # before anything is measured: alone, it has all the time for sampling
            m = self.first.run(case, replace(options, processes=1), run_id=run_id, progress=progress)
            return _alone(m, error.problem)
        m = self.first.run(case, options, run_id=run_id, progress=progress)
        if m.failure or not m.samples or m.options.processes == 1:
            return m
        m = replace(m, noise=replace(m.noise, pace_scatter=note_pace(m.environment)))
        of_others = replace(
            share_time(replace(m.options, processes=options.processes), m.options.processes),
            timer=",".join(timers.names_for_others(options.timer, m.samples)),
            stages="samples",
            verify="off",
            memory=False,
            store="off",
            cold_process=False,
            isolate=False,
        )
        request = SampleRequest(sealed, of_others, run_id)
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
            if failure := answer if isinstance(answer, Failure) else answer.failure:
                problem = problem or f"{failure.kind} in {failure.stage}: {failure.message}"
            elif isinstance(answer, Measurement):
                taken += 1
                m = replace(m, samples=(*m.samples, *(replace(s, process=process) for s in answer.samples)))
        return _alone(remarks.renew(replace(m, options=replace(m.options, processes=taken))), problem)

    def _sample(
        self, process: int, request: SampleRequest, limits: CallLimits, progress: Progress
    ) -> Measurement | Failure:
        from benchax.workers.pool import shared_pool  # noqa: PLC0415  # with all that starts processes

        return (self._pool or shared_pool()).call(
            sample_case,
            request,
            limits,
            shows_output=False,  # the first process has shown it
            on_message=lambda message: progress(STAGE, 0.0),
            # The first worker has measured the case in full already, if the case is isolated.
            worker=process - 1 + int(isinstance(self.first, Isolated)),
        )


@dataclass(frozen=True)
class SampleRequest:
    """The request to a further process."""

    case: Case | Sealed
    """Pickled once, before the first process has called the function; a worker gets the case itself."""
    options: Options
    run_id: str


def sample_case(request: SampleRequest, say: Say) -> Measurement:
    """Takes the samples, and returns them in a row without other stages."""
    rng = random.SystemRandom()
    # Allocate memory of random size from both of its sources, so that later allocations get other addresses.
    moved = bytearray(rng.randrange(16, 4096)), mmap.mmap(-1, mmap.PAGESIZE * rng.randrange(1, 512))
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


def _alone(m: Measurement, why: str) -> Measurement:
    """`m`, which says why it has no further processes, or fewer than it needs; nothing if it has all (empty)."""
    absent = [a for a in m.not_measured if a.what != OTHER_PROCESSES]
    absent += [Absent(OTHER_PROCESSES, why)] if why else []
    return replace(m, not_measured=tuple(absent))


def executor_for(options: Options, first_pool: Pool | None = None, pool: Pool | None = None) -> Executor:
    """A limit that only a process can keep to implies one, as pools do.

    Args:
        first_pool: of the worker that measures a case in full; default: the pool of this program.
        pool: of further workers; default: the pool of this program.

    Raises:
        UsageError: a timer that cannot time several processes together.
    """
    if options.nprocs is not None:
        from benchax.workers.ranks import Launched  # noqa: PLC0415  # with all that starts processes

        if options.timer not in ("auto", "wall"):
            raise UsageError(f"the timer {options.timer!r} is given with nprocs={options.nprocs}", "wall, or auto")
        return Launched()
    is_limited = options.timeout_s is not None or options.memory_limit_bytes is not None
    is_apart = options.isolate or options.cold_process or is_limited or first_pool is not None
    first: Executor = Isolated(options.cold_process, first_pool) if is_apart else Inline()
    return first if options.processes == 1 else Replicated(first, pool)
