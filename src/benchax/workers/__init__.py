"""Where a case runs. `executor_for(options)` chooses."""

from __future__ import annotations

from benchax.errors import UsageError
from benchax.model import Options
from benchax.workers.executors import Executor, Inline, Isolated


def executor_for(options: Options) -> Executor:
    """A limit that only a process can keep to implies one.

    Raises:
        UsageError: a timer that cannot time several processes together.
    """
    if options.nprocs is not None:
        from benchax.workers.ranks import Launched  # noqa: PLC0415  # with all that starts processes

        if options.timer not in ("auto", "wall"):
            raise UsageError(f"the timer {options.timer!r} is given with nprocs={options.nprocs}", "wall, or auto")
        return Launched()
    is_limited = options.timeout_s is not None or options.memory_limit_bytes is not None
    if options.cold_process:
        first: Executor = Isolated(cold=True)
    else:
        first = Isolated() if options.isolate or is_limited else Inline()
    if options.processes == 1:
        return first
    from benchax.workers.executors import Replicated  # noqa: PLC0415  # with all that starts processes

    return Replicated(first)
