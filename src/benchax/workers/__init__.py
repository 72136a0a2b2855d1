"""Where a case runs. `executor_for(options)` chooses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchax.errors import UsageError
from benchax.model import Options
from benchax.workers.executors import Executor, Inline, Isolated, Replicated

if TYPE_CHECKING:
    from benchax.workers.pool import Pool


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
