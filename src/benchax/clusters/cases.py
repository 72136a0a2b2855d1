"""Cases of `benchax run` on the nodes of a cluster: each in the workers of one node, as at home with `isolate`."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from benchax.case import Case
from benchax.clusters.agents import Agents, Dispatcher, Node, WorkBatch
from benchax.environment import at_commit_of, capture
from benchax.errors import UsageError
from benchax.measuring.record import RemoteRow, quiet
from benchax.model import CaseId, Environment, Failure, Measurement, Options
from benchax.progress import Listener, ProgressEvent
from benchax.workers.conversation import Listener as MessageListener
from benchax.workers.executors import executor_for
from benchax.workers.pickling import Sealed, seal
from benchax.workers.pool import Pool
from benchax.workers.task import UNLIMITED


@dataclass(frozen=True)
class SealedCase(Sealed):
    """A case on its way: what the agent must know of it, and the case as its workers unpickle it."""

    id: CaseId = field(default_factory=lambda: CaseId(""))
    folder: Path | None = None
    """None: a node doesn't have the driver's folder,"""
    listen: None = None
    """nor its display,"""
    find_earlier_runs: None = None
    """nor its store."""


@dataclass(frozen=True)
class CaseJob:
    """The measurement of a case, as an agent makes it."""

    case: Case | SealedCase
    options: Options
    run_id: str

    def seal(self) -> CaseJob:
        sealed = seal(self.case, f"case {self.case.id.label!r}")
        return replace(self, case=SealedCase(sealed.content, sealed.beside, self.case.id))

    def __call__(self, pool: Pool, on_message: MessageListener) -> Measurement:
        case: Any = self.case
        cold = Pool(warm=False, reuse=False, environ=pool.environ, jax_config=pool.jax_config)
        with cold if self.options.cold_process else nullcontext(pool) as first:
            executor = executor_for(self.options, first, pool)
            # An agent's messages arrive with its answer, too late to show them.
            return executor.run(case, self.options, run_id=self.run_id, progress=quiet)


def folder_of(cases: Sequence[Case]) -> Path:
    """Returns the common folder of all benchmark files, which goes to the nodes. Default: the working folder."""
    folders = [case.folder.resolve() for case in cases if case.folder is not None]
    if len(folders) < len(cases) or not folders:
        return Path.cwd()
    return Path(os.path.commonpath(folders))


def nprocs_of(options: Sequence[Options]) -> int | None:
    """Returns the number of processes of all cases. Raises `UsageError` if it differs between cases."""
    found = {each.nprocs for each in options}
    if len(found) > 1:
        counts = ", ".join(sorted(str(each or "none") for each in found))
        raise UsageError(
            f"cases of nprocs {counts} are given with --on", "one number for all of them", "a run for each number"
        )
    return found.pop() if found else None


def measure_cases(
    agents: Agents, cases: Sequence[Case], options: Sequence[Options], run_id: str, report: Listener
) -> Iterator[tuple[int, Measurement]]:
    """Yields (position of the case, its row) as they end. If no node was left for a case, its row says so.

    Raises:
        UsageError: options that cannot be kept; before anything is measured.
    """
    for each in options:
        executor_for(each)  # refuses what cannot be
    nodes = agents.start([case.fn for case in cases], UNLIMITED)

    def make_job(i: int, node: Node) -> CaseJob:
        ended = dispatcher.done.total()
        report(ProgressEvent(f"{cases[i].id.label} on {node.label}", "start", ended, len(cases)))
        return CaseJob(cases[i], options[i], run_id)

    batches = (WorkBatch(deque([i])) for i in range(len(cases)))
    dispatcher = Dispatcher(agents, nodes, batches, make_job, lambda i, message: None)
    missing = set(range(len(cases)))
    for each in dispatcher:
        missing.remove(each.item)
        yield each.item, _row(cases[each.item], options[each.item], run_id, each.node, each.outcome)
    why = "; ".join(list(dispatcher.lost.values())[-3:])
    for i in sorted(missing):
        failure = Failure("not_run", "start", f"no node is left: {why}")
        yield i, _row(cases[i], options[i], run_id, nodes[0], failure)


def _row(case: Case, options: Options, run_id: str, node: Node, outcome: Measurement | Failure) -> Measurement:
    if isinstance(outcome, Failure):
        outcome = RemoteRow().row(case.id, node.environment, options, run_id, outcome)
    return replace(outcome, environment=at_commit_of(_capture(case.folder), outcome.environment))


@lru_cache(maxsize=16)
def _capture(folder: Path | None) -> Environment:
    return capture(folder, with_jax=False)
