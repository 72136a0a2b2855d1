"""Runs a case in several processes that make one program (`jax.distributed`), and ends all of them when one fails.

Each rank is a worker of a pool of its own, so that it can be killed at any time and each limit holds. When one has
failed the others cannot go on: they wait for it. They are given a moment, since the first to complain need not be the
first to fail, and are ended then. Named is the rank that died first; of ranks that are stuck, the one that is furthest
behind; else the one whose error came first.

A sample begins for all at one moment (`measuring/start_line.py`), and its time runs from the last process's beginning
to the last one's end: what the start itself scatters by is kept out, and told.

All processes are of this host, whose monotonic clock is one.
"""

from __future__ import annotations

import queue
import socket
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

from benchax.case import Case
from benchax.environment import capture, count_cores
from benchax.errors import UsageError
from benchax.machine import noise
from benchax.measuring.record import Progress
from benchax.measuring.start_line import NS, make_file
from benchax.model import (
    Absent,
    Environment,
    Failure,
    Measurement,
    Options,
    Ranks,
    RankTimes,
    Remark,
    Samples,
    Stages,
)
from benchax.units import percent, plural, seconds
from benchax.workers import pickling
from benchax.workers.call_limits import START_S, CallLimits
from benchax.workers.pool import Pool
from benchax.workers.rank import STEPS, RankAnswer, RankJob, measure_rank

PATIENCE_S = 120.0
"""A rank that does not come to its next step for so long is taken for stuck, where no --timeout says it."""
GRACE_S = 2.0
"""For the others to fail after the first."""
SKEW_SHARE = 0.1
"""The share of a sample's time that the scatter of its start may have before that is remarked."""
LATE_SHARE = 0.9
"""One rank that ends last in so many of the samples is named."""
TIMER = "wall"


@dataclass(frozen=True)
class _RankEnd:
    """What came of one rank."""

    rank: int
    answer: RankAnswer | Failure
    step: str
    at: float


class Launched:
    """The contract is that of `Executor`: a case in `options.nprocs` processes."""

    def run(self, case: Case, options: Options, *, run_id: str, progress: Progress) -> Measurement:
        started_at, reading = datetime.now(UTC).isoformat(timespec="microseconds"), noise.start()
        told = run_ranks(case, options, progress)
        environment = capture(case.folder, with_jax=False)
        row = Measurement(case.id, environment, options, run_id, started_at)
        failed = [each for each in told if isinstance(each.answer, Failure)]
        if failed:
            return replace(row, failure=blame(told), noise=noise.finish(reading))
        answers = [
            each.answer for each in sorted(told, key=lambda each: each.rank) if isinstance(each.answer, RankAnswer)
        ]
        return replace(_fill(row, answers, environment), noise=noise.finish(reading))


def run_ranks(case: Case, options: Options, progress: Progress) -> list[_RankEnd]:
    """What came of each rank; no process is left, whatever happens."""
    count = options.nprocs or 1
    name = f"case {case.id.label!r}"
    try:
        packed = pickling.dumps(case)
    except Exception as error:
        raise UsageError(f"{name} cannot be sent to other processes: {error}", "a function of a file") from error
    patience_s = options.timeout_s or PATIENCE_S
    with tempfile.TemporaryDirectory(prefix="benchax-ranks-") as folder:
        line = str(make_file(Path(folder), count))
        address = f"127.0.0.1:{_free_port()}"
        jobs = [RankJob(packed, options, rank, count, address, line, patience_s) for rank in range(count)]
        return _Launch(jobs, patience_s, name, progress).collect()


class _Launch:
    """The ranks while they run: a thread for each, which listens to it."""

    def __init__(self, jobs: Sequence[RankJob], patience_s: float, name: str, progress: Progress) -> None:
        self.name, self.progress = name, progress
        sampling_s = jobs[0].options.max_time_s
        self.limits = CallLimits(
            lambda step: max(START_S, patience_s) if step in ("start", "connect") else patience_s + sampling_s,
            memory_bytes=jobs[0].options.memory_limit_bytes,
        )
        # A pool does one job at a time; a fork of a process that has run nothing of JAX knows no backend yet.
        self.pools = [Pool(warm=False, reuse=False, preload=("benchax.workers.rank",)) for _ in jobs]
        self.steps = ["start"] * len(jobs)
        self.found: queue.Queue[_RankEnd] = queue.Queue()
        self.threads = [threading.Thread(target=self._listen, args=(job,), daemon=True) for job in jobs]

    def collect(self) -> list[_RankEnd]:
        told: list[_RankEnd] = []
        try:
            for thread in self.threads:
                thread.start()
            until: float | None = None
            while len(told) < len(self.threads):
                try:
                    told.append(self.found.get(timeout=None if until is None else max(0.0, until - monotonic())))
                except queue.Empty:
                    break
                if until is None and isinstance(told[-1].answer, Failure):
                    until = monotonic() + GRACE_S
            return told
        finally:
            for pool in self.pools:
                pool.close()
            for thread in self.threads:
                thread.join()

    def _listen(self, job: RankJob) -> None:
        def note(message: dict[str, Any]) -> None:
            self.steps[job.rank] = message["stage"]
            if job.rank == 0:
                self.progress(message["stage"], 0.0)

        answer = self.pools[job.rank].call(
            measure_rank, job, self.limits, name=self.name, shows_output=job.rank == 0, on_message=note
        )
        self.found.put(_RankEnd(job.rank, answer, self.steps[job.rank], monotonic()))


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def blame(told: Sequence[_RankEnd]) -> Failure:
    """The failure of the rank that the others failed because of, under its name."""
    failed = sorted((each for each in told if isinstance(each.answer, Failure)), key=lambda each: each.at)
    kinds = {each.rank: each.answer.kind for each in failed if isinstance(each.answer, Failure)}
    crashed = [each for each in failed if kinds[each.rank] in ("crashed", "out_of_memory")]
    stuck = [each for each in failed if kinds[each.rank] == "timeout"]
    behind = sorted(stuck, key=lambda each: (_place(each.step), each.at))
    if crashed:
        chosen = crashed[:1]
    elif behind:
        # Ranks that are stuck at the same step cannot be told apart: one of them keeps the others waiting.
        chosen = [each for each in behind if _place(each.step) == _place(behind[0].step)]
    else:
        chosen = failed[:1]
    first = chosen[0].answer
    assert isinstance(first, Failure)
    who = " and ".join(f"rank {each.rank}" for each in sorted(chosen, key=lambda each: each.rank))
    return replace(first, message=f"{who} of {plural(max(each.rank for each in told) + 1, 'rank')}: {first.message}")


def _place(step: str) -> int:
    return STEPS.index(step) if step in STEPS else len(STEPS)


# ---- the row ----------------------------------------------------------------------------------------------------


def _fill(row: Measurement, answers: Sequence[RankAnswer], environment: Environment) -> Measurement:
    first = answers[0]
    known = {name: value for name, value in first.environment.items() if value is not None}
    environment = replace(environment, **{**known, "process_count": len(answers)})
    failure = _disagreement(answers)
    ranks, samples, absent = _times(answers)
    return replace(
        row,
        environment=environment,
        signature=first.signature,
        failure=failure,
        stages=Stages(
            trace_s=first.trace_s, lower_s=first.lower_s, compile_s=first.compile_s, first_run_s=first.first_run_s
        ),
        samples=samples if failure is None else (),
        devices=first.devices,
        ranks=ranks,
        remarks=_remarks(ranks, samples, first),
        not_measured=(*absent, *_NOT_OF_RANKS),
    )


_WHY = "it is measured in one process only"
_NOT_OF_RANKS = (
    Absent("numerics", "outputs of several processes are compared with one another, and with no eager result"),
    *(Absent(f"samples.{name}", _WHY) for name in ("in_graph", "pipelined", "loop", "device")),
    *(Absent(f"stages.{name}", _WHY) for name in ("transfer_in", "dispatch_s", "call_floor", "transfer_out")),
    *(Absent(f"memory.{name}", _WHY) for name in ("plan", "compiled_rise_bytes", "eager_rise_bytes")),
    Absent("cost", _WHY),
    Absent("program", _WHY),
    Absent("devices.shares", _WHY),
)


def _disagreement(answers: Sequence[RankAnswer]) -> Failure | None:
    """A piece of the outputs that several ranks hold and that is not the same bytes in all of them."""
    for name in dict.fromkeys(name for answer in answers for name in answer.pieces):
        held = {answer.rank: answer.pieces[name] for answer in answers if name in answer.pieces}
        digests = list(held.values())
        usual = max(digests, key=lambda each: (digests.count(each), -digests.index(each)))
        odd = [f"rank {rank}" for rank, digest in held.items() if digest != usual]
        if odd:
            others = ", ".join(f"rank {rank}" for rank, digest in held.items() if digest == usual)
            text = f"{' and '.join(odd)}: {name} differs from that of {others}"
            return Failure("wrong_output", "first run", text, "What is computed must not depend on the process.")
    return None


def _times(answers: Sequence[RankAnswer]) -> tuple[Ranks, tuple[Samples, ...], tuple[Absent, ...]]:
    each = answers[0].local_devices
    names = [name for answer in answers for name in answer.pieces]
    shared = sum(names.count(name) > 1 for name in set(names))
    plain = tuple(RankTimes(a.rank, a.host, (), a.compile_s) for a in answers)
    if not answers[0].begun_ns:
        return Ranks(plain, each, (), shared), (), (Absent("samples", "only the first run was asked for"),)
    begun = list(zip(*(a.begun_ns for a in answers), strict=True))
    ended = list(zip(*(a.ended_ns for a in answers), strict=True))
    last = [max(range(len(answers)), key=lambda rank, row=row: row[rank]) for row in ended]
    elapsed = [[(end - max(b)) / NS for end in e] for b, e in zip(begun, ended, strict=True)]
    times = tuple(
        RankTimes(a.rank, a.host, tuple(row[i] for row in elapsed), a.compile_s, last.count(i))
        for i, a in enumerate(answers)
    )
    skew = tuple((max(row) - min(row)) / NS for row in begun)
    slowest = tuple(map(max, elapsed))
    text = f"the slowest of {plural(len(answers), 'rank')}, from a common start"
    # What its start scattered by is not in a sample, but has shifted who waited for whom.
    disturbed = tuple(s > SKEW_SHARE * t for s, t in zip(skew, slowest, strict=True))
    return Ranks(times, each, skew, shared), (Samples(TIMER, 1, slowest, disturbed, answers=text, stop="time"),), ()


def _remarks(ranks: Ranks, samples: Sequence[Samples], first: RankAnswer) -> tuple[Remark, ...]:
    found: list[Remark] = []
    if first.devices is not None and first.devices.is_fake:
        text = f"{first.devices.count} fake devices share {plural(count_cores(), 'core')} of this CPU: "
        found.append(Remark("fake-devices", "warning", text + "no time here says what such devices would take"))
    if len(ranks.ranks) > count_cores():
        text = f"{plural(len(ranks.ranks), 'rank')} share {plural(count_cores(), 'core')}: they wait for one another's"
        found.append(Remark("ranks-share-cores", "warning", text))
    if samples:
        found += _late(ranks)
        count = samples[0].disturbed_count or 0
        if count > len(samples[0].elapsed_s) / 2:
            share = percent(count / len(samples[0].elapsed_s))
            text = f"in {share} of the samples ranks began further apart than a tenth of its time, and are marked so"
            found.append(Remark("start-skew", "warning", text))
    return tuple(found)


def _late(ranks: Ranks) -> list[Remark]:
    """The rank that nearly always ends last, where it ends well after the first."""
    slow = max(ranks.ranks, key=lambda rank: rank.was_last)
    others = [rank.median_s or 0.0 for rank in ranks.ranks if rank is not slow]
    if len(ranks.ranks) < 2 or slow.was_last < LATE_SHARE * len(slow.elapsed_s) or slow.median_s is None:
        return []
    behind_s = slow.median_s - max(others)
    if behind_s < SKEW_SHARE * slow.median_s:
        return []
    share = percent(slow.was_last / len(slow.elapsed_s))
    text = f"rank {slow.rank} ended last in {share} of the samples, {seconds(behind_s)} after the others"
    return [Remark("late-rank", "warning", text)]
