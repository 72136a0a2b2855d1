"""Runs a case in a worker process, `Isolated`, where what never returns is killed and a crash costs one row; or here,
`Inline`.

By default in a warm worker that has done other cases before; cold in a process in which JAX has done nothing yet, so
that the stages are those of a cold start. Limits of time hold for each stage, so that a long compilation does not eat
what the call may take.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Protocol

import numpy as np

from benchax import codec
from benchax.case import Case
from benchax.environment import capture, jax_facts
from benchax.executors.jobs import Job
from benchax.executors.pool import Pool, shared_pool
from benchax.measuring import timers
from benchax.measuring.engine import Progress, measure
from benchax.model import Cold, Environment, Failure, Measurement, Options

START_S = 60.0
"""Least time to import what the case needs: it is no stage of the user's function."""


class Executor(Protocol):
    """The contract: turns a case into a row, wherever that happens, whatever the function does."""

    def run(self, case: Case, options: Options, *, run_id: str, progress: Progress) -> Measurement:
        """Never raises for what the user's function does; KeyboardInterrupt passes through and leaves no process."""
        ...


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
        return self._pool or shared_pool(warm=self.cold != "process")

    def run(self, case: Case, options: Options, *, run_id: str, progress: Progress) -> Measurement:
        started_at = datetime.now(UTC).isoformat(timespec="microseconds")
        facts: dict[str, Any] = {}

        def listen(message: dict[str, Any]) -> None:
            facts.update(message.get("environment", {}))
            progress(message["stage"], message["share"])

        job = Job(
            "benchax.executors.isolated:measure_case",
            (case, options, run_id, self.cold),
            limits=lambda stage: limit(stage, options),
            memory_limit_bytes=options.memory_limit_bytes,
            name=f"case {case.id.label!r}",
        )
        ended = self.pool.run(job, listen)
        if ended.document is not None:
            return _with_program(codec.from_document(ended.document), ended.arrays)
        failure = ended.failure or Failure("crashed", ended.stage, "the process gave no answer")
        return Measurement(case.id, _environment(case, facts), options, run_id, started_at, failure=failure)


def measure_case(
    argument: tuple[Case, Options, str, Cold], say: Callable[..., None]
) -> tuple[dict[str, Any], list[np.ndarray]]:
    """In the worker. Tells its environment once, when the backend has started: a row of a case that is killed later
    must still say where it ran."""
    case, options, run_id, cold = argument
    has_told = False

    def progress(stage: str, share: float) -> None:
        nonlocal has_told
        if stage == "inputs" or has_told:
            say(stage, share=share)
        else:
            has_told = True
            say(stage, share=share, environment=jax_facts())

    m = measure(case, options, run_id=run_id, progress=progress, cold=cold)
    content = m.program.content if m.program else None
    return codec.to_document(m), [] if content is None else [np.frombuffer(content, np.uint8)]


def _with_program(m: Measurement, arrays: Sequence[np.ndarray]) -> Measurement:
    """The bytes of its program travel beside the document."""
    if m.program is None or not arrays:
        return m
    return replace(m, program=replace(m.program, content=arrays[0].tobytes()))


def limit(stage: str, options: Options) -> float | None:
    """How long a stage may take: `timeout_s`, and on top of it what the options grant to warming up and sampling."""
    if options.timeout_s is None:
        return None
    if stage == "start":
        return max(START_S, options.timeout_s)
    granted = {"warm-up": options.max_warmup_s, **dict.fromkeys(timers.TIMERS, options.max_time_s)}
    return options.timeout_s + granted.get(stage, 0.0)


def _environment(case: Case, facts: dict[str, Any]) -> Environment:
    # Without asking JAX here: that would start a backend in a process that has none.
    return replace(capture(case.folder, with_jax=False), **facts)
