"""A call that waits for its result before it returns, against one that returns at once (asynchronous dispatch).

It is a setting of XLA:CPU that holds from the start of a process, so pairs of new processes measure it. The time covers
a call and the wait for its result. In addition, a process of each kind that can use all cores records when the call
returns. If that is as late as the result, XLA ran it on the calling thread anyway, as it does with small work.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from benchax.case import Case
from benchax.errors import NotAvailable
from benchax.experiments.lab import Lab
from benchax.experiments.processes import Condition
from benchax.experiments.variant import Measure
from benchax.experiments.variant_rows import add_comparison, failed_row
from benchax.model import Measurement
from benchax.results.experiment import Facts, VariantRow
from benchax.units import seconds

SETTING = "jax_cpu_enable_async_dispatch"
TIMED = ("timed", "a call and the wait for its result; a caller with other work to do meanwhile could not begin it")
ASYNC, SYNC = Condition("asynchronous", {SETTING: True}), Condition("synchronous", {SETTING: False})


@dataclass(frozen=True)
class Synchronous:
    name: str = "sync"
    title: str = "each call waits for its result: asynchronous dispatch off"
    needs: str = "the CPU backend"
    only_by_name: bool = True

    def plan(self, case: Case, given: Any = None, seed: int = 0) -> Measure:
        return lambda lab: (self._row(case, lab),)

    def _row(self, case: Case, lab: Lab) -> VariantRow:
        # Only when a call returns and when its result is there is asked for.
        options = replace(lab.options, memory=False, verify="off", timer="wall")
        lab.tell("dispatch in processes of their own")
        one, other = (lab.measure_alone(case, condition, options) for condition in (ASYNC, SYNC))
        for found in (one, other):
            if found.failure is not None:
                return failed_row(self.name, self.title, found.failure)
        if one.environment.backend != "cpu":
            raise NotAvailable(f"{SETTING} is a setting of the CPU backend, and this is {one.environment.backend}")
        run = lab.time_processes(case, (ASYNC, SYNC))
        facts = (TIMED, *_returns("asynchronous", one), *_returns("synchronous", other))
        row = VariantRow(self.name, self.title, facts=facts)
        return add_comparison(row, run, VariantRow("baseline", "asynchronous dispatch"))


def _returns(label: str, m: Measurement) -> Facts:
    dispatch_s, summary = m.stages.dispatch_s, m.find_summary("wall")
    if dispatch_s is None or summary is None:
        return ()
    return (
        (label, f"the call returns after {seconds(dispatch_s)}, the result is there after {seconds(summary.median_s)}"),
    )


MEMBERS = (Synchronous(),)
