"""Runs a case in several processes that make one program (`jax.distributed`), and ends all of them when one fails.

This host starts all processes (`launch.py`). Or each process belongs to one of the programs that a launcher has
started, on several hosts (`joined.py`).

A sample begins for all at one moment (`measuring/start_line.py`). Its time runs from the last
process's beginning to the last one's end. The scatter of the start is excluded and reported.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

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
from benchax.workers.crew import free_port
from benchax.workers.joined import Follower, Leader, find_crew
from benchax.workers.launch import RankEnd, RankLaunch, blame
from benchax.workers.rank import RankAnswer, RankJob

PATIENCE_S = 120.0
"""A rank that does not reach its next step in this time counts as stuck, if there is no --timeout."""
SKEW_SHARE = 0.1
"""The share of a sample's time above which a remark reports the scatter of its start."""
LATE_SHARE = 0.9
"""A rank is named if it ends last in this share of the samples."""
TIMER = "wall"


class Launched:
    """The contract is that of `Executor`: a case in `options.nprocs` processes.

    In a program that follows another one the row is empty: its first one makes it.
    """

    def run(self, case: Case, options: Options, *, run_id: str, progress: Progress) -> Measurement:
        started_at, reading = datetime.now(UTC).isoformat(timespec="microseconds"), noise.start()
        ended = run_ranks(case, options, progress)
        environment = capture(case.folder, with_jax=False)
        row = Measurement(case.id, environment, options, run_id, started_at)
        if any(isinstance(each.answer, Failure) for each in ended):
            return replace(row, failure=blame(ended, options.nprocs or 1), noise=noise.finish(reading))
        ranks = sorted(ended, key=lambda each: each.rank)
        answers = [each.answer for each in ranks if isinstance(each.answer, RankAnswer)]
        return replace(_fill(row, answers, environment), noise=noise.finish(reading)) if answers else row


def run_ranks(case: Case, options: Options, progress: Progress) -> list[RankEnd]:
    """Returns the result of each rank; nothing in a program that follows. No process is left, whatever happens."""
    count, name = options.nprocs or 1, f"case {case.id.label!r}"
    try:
        packed = pickling.dumps(case)
    except Exception as error:
        raise UsageError(f"{name} cannot be sent to other processes: {error}", "a function of a file") from error

    def on_step(rank: int, step: str) -> None:
        if rank == 0:
            progress(step, 0.0)

    crew = find_crew(count)
    job = partial(RankJob, packed, options, count=count, patience_s=options.timeout_s or PATIENCE_S)
    match crew:
        case Leader():
            return crew.lead(name, lambda rank, jax, line: job(rank=rank, address=jax, line_at=line), on_step)
        case Follower():
            crew.follow(name, lambda rank, jax, line: job(rank=rank, address=jax, line_at=line))
            return []
        case None:
            with tempfile.TemporaryDirectory(prefix="benchax-ranks-") as folder:
                line, at = str(make_file(Path(folder), count)), f"127.0.0.1:{free_port('127.0.0.1')}"
                jobs = [job(rank=rank, address=at, line_file=line) for rank in range(count)]
                return RankLaunch(jobs, count, name, on_step).collect()


# ---- the row ----------------------------------------------------------------------------------------------------


def _fill(row: Measurement, answers: Sequence[RankAnswer], environment: Environment) -> Measurement:
    first = answers[0]
    commit, branch, is_dirty = environment.commit, environment.branch, environment.is_dirty
    environment = replace(first.environment, commit=commit, branch=branch, is_dirty=is_dirty)
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
        remarks=_remarks(ranks, samples, answers),
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
    error_s = max(a.clock_error_s for a in answers)
    if error_s:
        text += f"; the clocks of their hosts are known to {seconds(error_s)}"
    # What its start scattered by is not in a sample, but has shifted who waited for whom.
    disturbed = tuple(s + error_s > SKEW_SHARE * t for s, t in zip(skew, slowest, strict=True))
    return Ranks(times, each, skew, shared), (Samples(TIMER, 1, slowest, disturbed, answers=text, stop="time"),), ()


def _remarks(ranks: Ranks, samples: Sequence[Samples], answers: Sequence[RankAnswer]) -> tuple[Remark, ...]:
    found, first = list[Remark](), answers[0]
    if first.devices is not None and first.devices.is_fake:
        text = f"{first.devices.count} fake devices share {plural(count_cores(), 'core')} of this CPU: "
        found.append(Remark("fake-devices", "warning", text + "no time here says what such devices would take"))
    for host in dict.fromkeys(answer.host for answer in answers):
        own = [answer for answer in answers if answer.host == host]
        # A launcher may have bound each of them to a core of its own.
        cores = {core for answer in own for core in answer.environment.affinity or range(count_cores())}
        if len(own) > len(cores):
            text = f"{plural(len(own), 'rank')} share {plural(len(cores), 'core')} of {host}: they wait for one another"
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
