"""Runs a case in a worker process (`Isolated`), or here (`Inline`). In a worker, a call that never returns is killed,
and a crash costs one row.

The default is a warm worker that has done other cases before. A cold one is a process in which JAX has done nothing
yet, so that the stages are those of a cold start.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from benchax.case import Case
from benchax.environment import capture, jax_facts
from benchax.measuring.engine import measure
from benchax.measuring.record import Progress, keep_news, row_fields
from benchax.measuring.stages import release_programs
from benchax.model import Cold, Failure, Measurement, Options
from benchax.workers.call_limits import limits_of
from benchax.workers.task import Say, task

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
        started_at = datetime.now(UTC).isoformat(timespec="microseconds")
        known: dict[str, Any] = {}

        def listen(message: dict[str, Any]) -> None:
            keep_news(known, message)
            progress(message["stage"], message["share"])

        answer = self.pool.call(
            measure_case,
            (case, options, run_id, self.cold),
            limits_of(options),
            name=f"case {case.id.label!r}",
            on_message=listen,
        )
        if isinstance(answer, Failure):
            # Without asking JAX here: that would start a backend in a process that has none.
            environment = replace(capture(case.folder, with_jax=False), **known.pop("environment", {}))
            return Measurement(case.id, environment, options, run_id, started_at, failure=answer, **row_fields(known))
        m, content = answer
        if case.find_earlier_runs and m.earlier_runs.source:
            m = replace(m, earlier_runs=case.find_earlier_runs(m.earlier_runs.source, m.environment.fingerprint))
        return m if m.program is None else replace(m, program=replace(m.program, content=content))


@task
def measure_case(argument: tuple[Case, Options, str, Cold], say: Say) -> tuple[Measurement, bytes | None]:
    """Returns the row, and the bytes of its program, which rows do not hold on their way.

    Each step reports the new results of the row, and once its environment, when the backend has started. So the row of
    a case that is killed later has all of that.
    """
    case, options, run_id, cold = argument
    news: dict[str, Any] = {}
    has_told = False

    def progress(stage: str, share: float) -> None:
        nonlocal has_told
        # Not before the inputs are made: asking JAX starts its backend.
        if stage != "inputs" and not has_told:
            has_told = True
            news["environment"] = jax_facts()
        say(stage, share=share, **news)
        news.clear()

    m = measure(case, options, run_id=run_id, progress=progress, cold=cold, listen=news.update)
    release_programs()
    return m, m.program.content if m.program else None
