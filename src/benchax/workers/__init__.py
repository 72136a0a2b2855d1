"""Where a case runs. `executor_for(options)` chooses."""

from __future__ import annotations

from benchax.model import Options
from benchax.workers.isolated import Executor, Inline, Isolated
from benchax.workers.replicated import Replicated


def executor_for(options: Options) -> Executor:
    """A limit that only a process can keep to implies one."""
    is_limited = options.timeout_s is not None or options.memory_limit_bytes is not None
    if options.cold_process:
        first: Executor = Isolated(cold=True)
    else:
        first = Isolated() if options.isolate or is_limited else Inline()
    return first if options.processes == 1 else Replicated(first)
