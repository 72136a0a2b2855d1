"""For the tests of grids: a pool that runs jobs in this process, some of them to an end that is written beforehand."""

from __future__ import annotations

import json
from collections.abc import Mapping
from time import monotonic
from typing import Any

from benchax.clusters.agents import LocalAgents
from benchax.grids.cell import CellRequest
from benchax.grids.grid import GridRun, defaults, result_of, start_run, validate_spec
from benchax.grids.result import GridResult
from benchax.model import Failure
from benchax.workers.channel import pack, unpack
from benchax.workers.conversation import Listener, ignore
from benchax.workers.task import UNLIMITED, A, CallLimits, R, Task, hint_of


class HerePool:
    """Calls tasks in this process, at once; what crosses the process boundary as JSON is JSON here too.

    Args:
        endings: for cells by function name: a failure that the call ends with after its `after`-th announcement, or an
            exception to raise.
    """

    def __init__(self, endings: Mapping[str, Failure | BaseException] | None = None, after: int = 0) -> None:
        self.endings = endings or {}
        self.after = after
        self.requests: list[CellRequest] = []
        self.limits: list[CallLimits] = []
        self.prepared = 0

    def prepare(self) -> None:
        self.prepared += 1

    def call(
        self,
        task: Task[A, R],
        argument: A,
        limits: CallLimits = UNLIMITED,
        *,
        shows_output: bool = True,
        on_message: Listener = ignore,
    ) -> R | Failure:
        if isinstance(argument, CellRequest):
            self.requests.append(argument)
            self.limits.append(limits)
        ending = self.endings.get(getattr(argument, "function", ""))
        said = 0

        def say(stage: str, **facts: Any) -> None:
            nonlocal said
            if ending is not None and said >= self.after:
                raise _End
            said += 1
            on_message(json.loads(json.dumps({"stage": stage, **facts})))

        try:
            value = task(argument, say)
        except _End:
            if isinstance(ending, BaseException):
                raise ending from None
            assert ending is not None
            return ending
        hint = hint_of(task)
        return unpack([memoryview(section).cast("B") for section in pack(value, hint)], hint)

    @property
    def cells(self) -> list[str]:
        """The functions of the cells that were run, in order."""
        return [request.function for request in self.requests]


class _End(BaseException):
    """Passes through whatever the cell catches."""


def run_of(functions: Any, data: Any, pool: Any = None, *, then: bool = True, **given: Any) -> GridRun:
    """A run in this process; nothing is stored unless `store` is given."""
    spec = validate_spec(functions, data, defaults() | {"store": "off"} | given)
    run = start_run(spec, LocalAgents(pool or HerePool()), lambda step: None)
    if then:
        run.go()
    return run


def grid_here(functions: Any, data: Any, pool: Any = None, clock: Any = monotonic, **given: Any) -> GridResult:
    spec = validate_spec(functions, data, defaults() | {"store": "off"} | given)
    run = start_run(spec, LocalAgents(pool or HerePool()), lambda step: None, clock)
    run.go()
    return result_of(run)
