"""Where a case runs. `executor_for(options)` chooses."""

from __future__ import annotations

from benchax.executors.base import Executor
from benchax.executors.fresh import FreshProcess
from benchax.executors.inline import Inline
from benchax.model import Options


def executor_for(options: Options) -> Executor:
    return FreshProcess() if options.cold_process else Inline()
