"""A call that waits for its result before it returns, beside one that returns at once (asynchronous dispatch).

A setting of XLA:CPU, which holds from the start of a process: so by pairs of new processes. Timed is a call and the
wait for its result. Beside it, in a process of each kind that may use all cores, when the call returns: where that is
as late as the result, XLA ran it on the calling thread anyway, as it does with small work.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import jax

from benchax.case import Case
from benchax.errors import NotAvailable, NotMeasured
from benchax.executors.isolated import Isolated
from benchax.executors.pool import Pool
from benchax.experiments.base import Facts, PreparedVariant, Tell
from benchax.experiments.processes import Condition, pairs
from benchax.experiments.variant_rows import add_comparison, failed_row
from benchax.measuring.jax_settings import jax_settings
from benchax.model import Comparison, Measurement, Options
from benchax.options import resolve
from benchax.paired_runs.process_pairs import compare_launches as by_pairs
from benchax.results.experiment import VariantRow
from benchax.units import seconds

SETTING = "jax_cpu_enable_async_dispatch"
TIMED = ("timed", "a call and the wait for its result; a caller with other work to do meanwhile could not begin it")
ASYNC, SYNC = Condition("asynchronous", {SETTING: True}), Condition("synchronous", {SETTING: False})


def alone(case: Case, condition: Condition, options: Options) -> Measurement:
    """A measurement in a process of its own, born under that condition."""
    with _set(condition.settings[SETTING]), Pool(start="spawn", warm=False, reuse=False) as pool:
        return Isolated(pool=pool).run(case, options, run_id="", progress=lambda stage, share: None)


@contextmanager
def _set(value: bool) -> Iterator[None]:
    """What this program starts meanwhile has that setting. Its own backend has read it long before."""
    before = jax_settings()[SETTING]
    jax.config.update(SETTING, value)
    try:
        yield
    finally:
        jax.config.update(SETTING, before)


@dataclass(frozen=True)
class Synchronous:
    name: str = "sync"
    title: str = "each call waits for its result: asynchronous dispatch off"
    needs: str = "the CPU backend"
    pairs: Callable[..., list[Comparison]] = by_pairs
    alone: Callable[[Case, Condition, Options], Measurement] = alone

    def prepare(self, case: Case, given: Mapping[str, Any]) -> PreparedVariant:
        if not given.get("asked", True):
            raise NotMeasured("it starts many processes: ask for it by name")
        return PreparedVariant(case, measure=lambda tell: self._row(case, given, tell), combines=False)

    def _row(self, case: Case, given: Mapping[str, Any], tell: Tell) -> VariantRow:
        seed = given.get("seed", 0)
        options = replace(given.get("options") or resolve({"seed": seed}), memory=False, verify="off", timer="wall")
        tell("dispatch in processes of their own")
        one, other = (self.alone(case, condition, options) for condition in (ASYNC, SYNC))
        for found in (one, other):
            if found.failure is not None:
                return failed_row(self.name, self.title, found.failure)
        if one.environment.backend != "cpu":
            raise NotAvailable(f"{SETTING} is a setting of the CPU backend, and this is {one.environment.backend}")
        effort = given.get("effort")
        judged = pairs(case, (ASYNC, SYNC), seed, effort.max_time_s if effort else None, tell, self.pairs)
        facts = (TIMED, *_returns("asynchronous", one), *_returns("synchronous", other))
        row = VariantRow(self.name, self.title, facts=facts)
        run = next(c for c in judged if c.metric == "run")
        return add_comparison(row, run, VariantRow("baseline", "asynchronous dispatch"))


def _returns(label: str, m: Measurement) -> Facts:
    dispatch_s, summary = m.stages.dispatch_s, m.summary("wall")
    if dispatch_s is None or summary is None:
        return ()
    return (
        (label, f"the call returns after {seconds(dispatch_s)}, the result is there after {seconds(summary.median_s)}"),
    )


MEMBERS = (Synchronous(),)
