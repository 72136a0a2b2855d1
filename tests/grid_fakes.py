"""For the tests of grids: a pool that runs jobs in this process, some of them to an end that is written beforehand."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from benchax.executors.pool import Ended, Job
from benchax.grids.grid import defaults, result_of, start_run, validate_spec
from benchax.grids.result import GridResult
from benchax.grids.running import GridRun
from benchax.model import Failure

Listener = Callable[[dict[str, Any]], None]


class HerePool:
    """Runs jobs in this process, at once; what crosses the process boundary as JSON is JSON here too.

    Args:
        endings: for cells by function name: a failure that the job ends with after its `after`-th announcement, or an
            exception to raise.
    """

    def __init__(self, endings: Mapping[str, Failure | BaseException] | None = None, after: int = 0) -> None:
        self.endings = endings or {}
        self.after = after
        self.jobs: list[Job] = []
        self.prepared = 0

    def prepare(self) -> None:
        self.prepared += 1

    def run(self, job: Job, on_message: Listener = lambda message: None) -> Ended:
        self.jobs.append(job)
        ending = self.endings.get(getattr(job.argument, "function", ""))
        said = 0

        def say(stage: str, **facts: Any) -> None:
            nonlocal said
            if ending is not None and said >= self.after:
                raise _End
            said += 1
            on_message(json.loads(json.dumps({"stage": stage, **facts})))

        module, _, function = job.entry.partition(":")
        try:
            document, arrays = getattr(importlib.import_module(module), function)(job.argument, say)
        except _End:
            if isinstance(ending, BaseException):
                raise ending from None
            assert ending is not None
            return Ended(None, failure=ending, stage=ending.stage)
        return Ended(json.loads(json.dumps(document)), tuple(arrays))

    @property
    def cells(self) -> list[str]:
        """The functions of the cells that were run, in order."""
        return [job.argument.function for job in self.jobs if job.argument is not None]


class _End(BaseException):
    """Passes through whatever the cell catches."""


def run_of(functions: Any, data: Any, pool: Any = None, *, then: bool = True, **given: Any) -> GridRun:
    """A run in this process; nothing is stored unless `store` is given."""
    wish = validate_spec(functions, data, defaults() | {"store": "off"} | given)
    run = start_run(wish, pool or HerePool(), lambda step: None)
    if then:
        run.go()
    return run


def grid_here(functions: Any, data: Any, pool: Any = None, clock: Any = monotonic, **given: Any) -> GridResult:
    wish = validate_spec(functions, data, defaults() | {"store": "off"} | given)
    run = start_run(wish, pool or HerePool(), lambda step: None, clock)
    run.go()
    return result_of(run, wish)
