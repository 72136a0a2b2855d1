"""One rank of a program of several processes: joins the others, builds, runs in lockstep with them, and reports.

All ranks do the same steps in the same order, since a collective waits for each of them. For the same reason, the first
rank decides the number of calls, at the start line (`measuring/start_line.py`). Ranks that exchange different data are
reported before the first call, which would never end. Outputs are compared by digests of their pieces: a piece that
several ranks hold must have the same bytes in all of them.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import jax
import numpy as np

from benchax.case import Case
from benchax.environment import capture_process
from benchax.errors import UsageError
from benchax.machine.noise import paused_gc
from benchax.measuring.device_shares import devices_of
from benchax.measuring.prepare import Prepared, prepare
from benchax.measuring.record import Record
from benchax.measuring.start_line import NS, RemoteStartLine, StartLine
from benchax.measuring.timers.base import Subject
from benchax.model import Environment, Options
from benchax.program import hlo
from benchax.program.collectives import collectives
from benchax.workers import pickling
from benchax.workers.task import Say, task

WARMUP_CALLS, LEAST_SAMPLES = 3, 10
STEPS = ("start", "connect", "inputs", "trace", "lower", "compile", "first run", "warm-up", "samples", "end")
"""In the order in which each rank comes by."""
JOIN_S = 60
"""For all ranks to find one another."""


@dataclass(frozen=True)
class RankJob:
    """The request to a rank."""

    case: bytes
    """Pickled: to read it may import a file that asks for devices, and before that all ranks have to be connected."""
    options: Options
    rank: int
    count: int
    address: str
    """The address of the first rank, if JAX connects them."""
    patience_s: float
    line_file: str = ""
    """Of the start line of one host."""
    line_at: str = ""
    """Address of the start line of several hosts."""


@dataclass(frozen=True)
class RankAnswer:
    """The observations of a rank, besides the news of its row."""

    rank: int
    host: str
    local_devices: int
    compile_s: float | None
    begun_ns: tuple[int, ...]
    ended_ns: tuple[int, ...]
    pieces: dict[str, str]
    """Digest of each piece of the outputs, by its leaf and its place there."""
    environment: Environment
    """Without its commit, which who has launched it knows."""
    clock_error_s: float = 0.0
    """Within which its times are on the clock of the first rank."""


@task
def measure_rank(job: RankJob, say: Say) -> RankAnswer:
    """Each step reports the new results of the row."""
    record = Record(lambda stage, share: say(stage, share=share, **record.news()))
    record.enter("connect")
    _join(job)
    record.enter("inputs")
    case: Case = pickling.loads(job.case)
    prepared = prepare(case, job.options.seed, record.enter)
    record.signature = prepared.inputs.signature
    record.stages, record.absent = prepared.built.stages, prepared.built.absent
    _check_exchanges(prepared, job)
    first = prepared.call_first()
    record.stages = replace(record.stages, first_run_s=None if first.compiles else first.elapsed_s)
    subject = first.subject
    record.devices = devices_of(subject)
    pieces = _pieces(subject.returned)
    record.enter("warm-up")
    line = _open_line(job)
    for _ in range(WARMUP_CALLS):
        line.start()
        jax.block_until_ready(subject.call())
    record.enter("samples")
    begun, ended = ((), ()) if job.options.stages != "all" else _sample(subject, line, job.options)
    line.close()
    record.enter("end")
    jax.distributed.shutdown()  # waits for all: who leaves earlier is taken for dead
    return RankAnswer(
        job.rank,
        socket.gethostname(),
        jax.local_device_count(),
        record.stages.compile_s,
        begun,
        ended,
        pieces,
        capture_process(),
        line.error_s,
    )


def _open_line(job: RankJob) -> StartLine | RemoteStartLine:
    if job.line_at:
        return RemoteStartLine(job.line_at, job.rank, job.count, job.patience_s)
    return StartLine(Path(job.line_file), job.rank, job.count, job.patience_s)


def _join(job: RankJob) -> None:
    """Raises `UsageError` if there is no device for this rank."""
    # Ranks that are started here listen here only, and share its devices whatever launcher has started this program.
    host, _, port = job.address.rpartition(":")
    try:
        jax.distributed.initialize(
            job.address,
            num_processes=job.count,
            process_id=job.rank,
            initialization_timeout=JOIN_S,
            coordinator_bind_address=f"{host if job.line_file else '[::]'}:{port}",
            cluster_detection_method="deactivate" if job.line_file else None,
        )
        found = jax.local_device_count()
    except RuntimeError as error:
        problem = f"rank {job.rank} cannot join the others: {error}"
        raise UsageError(problem, "ranks that reach one another", _advise_names()) from error
    if not found:
        raise UsageError(f"there is no device for rank {job.rank}", "at most as many ranks as devices")


def _advise_names() -> str:
    """On CPUs ranks exchange data by gloo, which looks for an address of this host under its name."""
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return f"this host's name, {socket.gethostname()!r}, has no address: put one into its /etc/hosts"
    return ""


def _check_exchanges(prepared: Prepared, job: RankJob) -> None:
    """Raises `UsageError` if ranks would wait for one another for ever: their programs exchange different data."""
    from jax.experimental import multihost_utils  # noqa: PLC0415  # 0.1 s, and only ranks need it

    found = collectives(hlo.parse(prepared.hlo))
    text = repr([(call.opcode, call.size_bytes, call.groups, call.trips) for call in found.calls])
    own = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.uint8)
    every = [bytes(each) for each in np.asarray(multihost_utils.process_allgather(own)).reshape(job.count, -1)]
    odd = [rank for rank, each in enumerate(every) if each != usual(every)]
    if odd:
        names = " and ".join(f"rank {rank}" for rank in odd)
        raise UsageError(
            f"{names} compiled a program that exchanges other data than the others' do: all would wait for ever",
            "a function that is the same in each process",
        )


def usual(every: Sequence[Any]) -> Any:
    """Returns the most frequent value; if two are equally frequent, the value of the lower rank."""
    return max(every, key=lambda each: (every.count(each), -every.index(each)))


def _pieces(outputs: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(outputs)[0]:
        if not isinstance(leaf, jax.Array):
            continue
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            leaf = jax.random.key_data(leaf)
        for shard in leaf.addressable_shards:
            place = ",".join(
                f"{s.start or 0}:{s.stop if s.stop is not None else n}"
                for s, n in zip(shard.index, leaf.shape, strict=True)
            )
            name = f"out{jax.tree_util.keystr(path)}[{place}]"
            content = np.asarray(shard.data)
            found[name] = hashlib.sha256(f"{content.dtype}{content.shape}".encode() + content.tobytes()).hexdigest()
    return found


def _sample(
    subject: Subject, line: StartLine | RemoteStartLine, options: Options
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The times of the first rank's clock at which each sample began and ended."""
    begun: list[int] = []
    ended: list[int] = []
    until = perf_counter_ns() + options.max_time_s * NS
    with paused_gc():
        while True:
            ready = subject.ready()
            enough = len(begun) >= LEAST_SAMPLES and (perf_counter_ns() >= until or len(begun) >= options.max_samples)
            start = line.start(is_last=enough)
            if start is None:
                line.align()
                return line.to_common(begun), line.to_common(ended)
            outputs = jax.block_until_ready(ready())
            ended.append(perf_counter_ns())
            begun.append(start)
            del outputs
