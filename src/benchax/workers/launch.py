"""The ranks of a program that run under this process. Finds the rank that caused a failure.

Each rank is a worker in its own pool, so that it can be killed at any time and each limit holds. When one rank has
failed, the others cannot go on: they wait for it. They get a moment, since the first to complain need not be the first
to fail, and are then ended. The report names the rank that died first. If ranks are stuck, it names the rank that is
furthest behind; else the rank whose error came first.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any

from benchax.model import Failure
from benchax.units import plural
from benchax.workers.call_limits import START_S, CallLimits
from benchax.workers.pool import Pool
from benchax.workers.rank import STEPS, RankAnswer, RankJob, measure_rank

GRACE_S = 2.0
"""For the others to fail after the first."""
StepListener = Callable[[int, str], None]
"""Told a rank, and the step that it has come to."""


@dataclass(frozen=True)
class RankEnd:
    """The result of one rank."""

    rank: int
    answer: RankAnswer | Failure
    step: str
    at: float


class RankLaunch:
    """The ranks while they run: a thread for each that is here, which listens to it.

    Args:
        jobs: the ranks that run here.
        count: the number of all ranks. The receiver of results from elsewhere puts them into `found`.
    """

    def __init__(
        self, jobs: Sequence[RankJob], count: int, name: str, on_step: StepListener, grace_s: float = GRACE_S
    ) -> None:
        self.name, self.count, self.on_step, self.grace_s = name, count, on_step, grace_s
        options, patience_s = jobs[0].options, jobs[0].patience_s
        self.limits = CallLimits(
            lambda step: max(START_S, patience_s) if step in ("start", "connect") else patience_s + options.max_time_s,
            memory_bytes=options.memory_limit_bytes,
        )
        # A pool does one job at a time; a fork of a process that has run nothing of JAX knows no backend yet.
        self.pools = [Pool(warm=False, reuse=False, preload=("benchax.workers.rank",)) for _ in jobs]
        self.steps = dict.fromkeys(range(count), "start")
        self.found: queue.Queue[RankEnd] = queue.Queue()
        self.threads = [
            threading.Thread(target=self._listen, args=each, daemon=True) for each in zip(self.pools, jobs, strict=True)
        ]

    def collect(self) -> list[RankEnd]:
        """Returns the result of each rank. No rank that ran here is left, whatever happens."""
        ended: list[RankEnd] = []
        try:
            for thread in self.threads:
                thread.start()
            until: float | None = None
            while len(ended) < self.count:
                try:
                    ended.append(self.found.get(timeout=None if until is None else max(0.0, until - monotonic())))
                except queue.Empty:
                    break
                if until is None and isinstance(ended[-1].answer, Failure):
                    until = monotonic() + self.grace_s
            return ended
        finally:
            self.close()
            for thread in self.threads:
                if thread.ident is not None:
                    thread.join()

    def note(self, rank: int, step: str) -> None:
        self.steps[rank] = step
        self.on_step(rank, step)

    def end(self, rank: int, answer: RankAnswer | Failure) -> None:
        self.found.put(RankEnd(rank, answer, self.steps[rank], monotonic()))

    def close(self) -> None:
        """Ends the ranks that run here."""
        for pool in self.pools:
            pool.close()

    def _listen(self, pool: Pool, job: RankJob) -> None:
        def note(message: dict[str, Any]) -> None:
            self.note(job.rank, message["stage"])

        answer = pool.call(measure_rank, job, self.limits, name=self.name, shows_output=job.rank == 0, on_message=note)
        self.end(job.rank, answer)


def blame(ended: Sequence[RankEnd], count: int) -> Failure:
    """The failure of the rank that the others failed because of, under its name."""
    failures = sorted(
        ((each, each.answer) for each in ended if isinstance(each.answer, Failure)), key=lambda pair: pair[0].at
    )
    dead = [each for each in failures if each[1].kind in ("crashed", "out_of_memory", "node_lost")]
    stuck = sorted(
        (each for each in failures if each[1].kind == "timeout"), key=lambda each: (_place(each[0].step), each[0].at)
    )
    if _is_own(*failures[0]):
        # JAX aborts the others when the first rank, which connects them, has ended by an error.
        chosen = failures[:1]
    elif dead:
        chosen = dead[:1]
    elif stuck:
        # Ranks that are stuck at the same step cannot be told apart: one of them keeps the others waiting.
        chosen = [each for each in stuck if _place(each[0].step) == _place(stuck[0][0].step)]
    else:
        chosen = failures[:1]
    first = chosen[0][1]
    who = " and ".join(f"rank {each.rank}" for each in sorted((end for end, _ in chosen), key=lambda end: end.rank))
    return replace(first, message=f"{who} of {plural(count, 'rank')}: {first.message}")


def _is_own(end: RankEnd, failure: Failure) -> bool:
    """Up to lowering nothing is exchanged: what goes wrong there is of no other rank's doing."""
    return failure.kind == "error" and _place(end.step) <= STEPS.index("lower")


def _place(step: str) -> int:
    return STEPS.index(step) if step in STEPS else len(STEPS)
