"""Where variants are measured.

A `Lab` has all that measures: the worker that looks at each side once (`study.py`), pairs of cases (`pair_timing.py`),
programs that are counted (`counting.py`), and pairs of fresh processes (`processes.py`). A variant is handed one, and
so is whatever else compares; tests hand in one with results made by hand. How what was measured is judged says
`variant_rows.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any, Protocol

from benchax.case import Case
from benchax.comparing.sequential import Effort
from benchax.errors import NotMeasured
from benchax.experiments import pair_timing, processes, study
from benchax.experiments.counting import Counted, count_ways
from benchax.experiments.pair_timing import Pair
from benchax.experiments.processes import Condition
from benchax.experiments.study import Study, StudySide
from benchax.model import Comparison, Failure, Measurement, Options
from benchax.progress import Listener, ProgressEvent, quiet
from benchax.workers.call_limits import limits_of
from benchax.workers.executors import Isolated
from benchax.workers.pool import Pool, shared_pool, spawned_pool
from benchax.workers.task import A, R, Task

BASELINE = "baseline"
USUAL = Condition("as usual")


class Lab(Protocol):
    """Measures for variants."""

    @property
    def options(self) -> Options:
        """Limits, and the seed."""
        ...

    @property
    def effort(self) -> Effort:
        """How long to go on with comparisons."""
        ...

    def tell(self, text: str) -> None:
        """Receives the progress in words."""
        ...

    def study(self, sides: Sequence[StudySide], condition: Condition | None = None) -> Study:
        """Builds and runs every side once, in a worker; the first is the baseline.

        Args:
            condition: what the worker is to be born with; None: any that is warm.
        """
        ...

    def time_pairs(self, pairs: Sequence[Pair], looks: tuple[int, ...] | None = None) -> dict[str, Comparison]:
        """Compares the run times of each pair in fresh processes, and returns the comparisons by name.

        Args:
            looks: the numbers of processes after which to look; None: the numbers of `effort`.
        """
        ...

    def count_programs(self, ways: Mapping[str, Sequence[Case]]) -> dict[str, Counted]:
        """How many programs a jitted function needs for a list of calls, for each way to make them, in a worker."""
        ...

    def time_processes(self, case: Case, conditions: tuple[Condition, Condition]) -> Comparison:
        """The comparison of run times under two conditions that a process is born with, in pairs of new processes."""
        ...

    def measure_alone(self, case: Case, condition: Condition, options: Options) -> Measurement:
        """A measurement in a new process that is born under that condition."""
        ...

    def call_alone(
        self, task: Task[A, R], argument: A, *, name: str, condition: Condition = USUAL, tells_stages: bool = True
    ) -> R | Failure:
        """Returns the result of a task for its argument in a new process, or the failure.

        Args:
            name: name of the object to send, for the message if sending fails.
            tells_stages: False: the caller has reported the progress.
        """
        ...


LEAST_LEFT_S = 1e-3
"""A measurement that has begun takes its first group of processes even with this little time left."""


@dataclass
class WorkerLab:
    """The lab that measures in worker processes."""

    options: Options
    effort: Effort = field(default_factory=Effort)
    report: Listener = quiet
    begun_s: float = field(default_factory=monotonic)
    has_studied: bool = False
    """Has it looked at anything? The first look is had whatever the limit."""
    begins_late: bool = True
    """Do comparisons take their first group of processes even when no time is left?"""

    def tell(self, text: str) -> None:
        self.report(ProgressEvent(text, left_s=self._left_s, is_most=True))

    def study(self, sides: Sequence[StudySide], condition: Condition | None = None) -> Study:
        if self.has_studied:
            self._refuse_late()
        self.has_studied = True
        if condition is None:
            return study.study(shared_pool(), sides, self.options, self.tell)
        with _pool_under(condition) as pool:
            return study.study(pool, sides, self.options, self.tell)

    def time_pairs(self, pairs: Sequence[Pair], looks: tuple[int, ...] | None = None) -> dict[str, Comparison]:
        if looks is not None:  # of a variant that measures by itself, for which another limit would begin
            self._refuse_late()
        left_s = 0.0 if self._left_s == LEAST_LEFT_S and not self.begins_late else self._left_s
        effort = replace(self.effort, looks=looks or self.effort.looks, max_time_s=left_s)
        return pair_timing.time_pairs(pairs, self.options, effort, self.report)

    def count_programs(self, ways: Mapping[str, Sequence[Case]]) -> dict[str, Counted]:
        self._refuse_late()
        return count_ways(shared_pool(), ways, self.options, self.tell)

    def time_processes(self, case: Case, conditions: tuple[Condition, Condition]) -> Comparison:
        self._refuse_late()
        found = processes.pairs(case, conditions, self.options.seed, self._left_s, self.report)
        return next(c for c in found if c.metric == "run")

    def measure_alone(self, case: Case, condition: Condition, options: Options) -> Measurement:
        self._refuse_late()
        with _pool_under(condition) as pool:
            return Isolated(pool=pool).run(case, options, run_id="", progress=lambda stage, share: None)

    def call_alone(
        self, task: Task[A, R], argument: A, *, name: str, condition: Condition = USUAL, tells_stages: bool = True
    ) -> R | Failure:
        def on_message(message: Mapping[str, Any]) -> None:
            if tells_stages:
                self.tell(message["stage"])

        self._refuse_late()
        with _pool_under(condition) as pool:
            return pool.call(task, argument, limits_of(self.options), name=name, on_message=on_message)

    @property
    def _left_s(self) -> float | None:
        """Returns the rest of the limit, which all measurements of this lab share, or None if there is no limit."""
        limit_s = self.effort.max_time_s
        return None if limit_s is None else max(LEAST_LEFT_S, limit_s - (monotonic() - self.begun_s))

    def _refuse_late(self) -> None:
        if self._left_s == LEAST_LEFT_S:
            raise NotMeasured(f"the {self.effort.max_time_s:g} s were used up (--max-time)")


def _pool_under(condition: Condition) -> Pool:
    return spawned_pool(condition.environ, condition.settings)
