"""One rank of a program of several processes: joins the others, builds, runs in lockstep with them, and reports.

All ranks do the same steps in the same order, since a collective waits for each of them. For the same reason, the first
rank decides the number of calls, at the start line. Ranks that exchange different data are
reported before the first call, which would never end. Outputs are compared by digests of their pieces: a piece that
several ranks hold must have the same bytes in all of them.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter_ns, sleep
from typing import Any
from uuid import UUID

import jax
import numpy as np

from benchax.case import Case
from benchax.environment import capture_process
from benchax.errors import NotMeasured, UsageError
from benchax.machine.noise import paused_gc
from benchax.measuring.prepare import Prepared, devices_of, prepare
from benchax.measuring.record import Record
from benchax.measuring.timers.base import Subject
from benchax.model import Environment, Options
from benchax.program import hlo
from benchax.program.work import collectives
from benchax.static_leaves import data_of
from benchax.units import seconds
from benchax.workers import pickling
from benchax.workers.task import Say

WARMUP_CALLS, LEAST_SAMPLES = 3, 10
STEPS = ("start", "connect", "inputs", "trace", "lower", "compile", "first run", "warm-up", "samples", "end")
"""In the order in which each rank comes by."""
JOIN_S = 60.0
"""For all ranks to find one another, and for all programs of a launcher."""


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
    line: str
    """The address of the start line, on the host of the first rank."""
    is_remote: bool = False
    """Are there several hosts?"""


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
    line = StartLine(job.line, job.rank, job.count, job.patience_s, clock_id() if job.is_remote else 1)
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


def _join(job: RankJob) -> None:
    """Raises `UsageError` if there is no device for this rank."""
    # Ranks that are started here listen only on this machine, and share its devices whatever launcher started this
    # program.
    host, _, port = job.address.rpartition(":")
    try:
        jax.distributed.initialize(
            job.address,
            num_processes=job.count,
            process_id=job.rank,
            initialization_timeout=int(JOIN_S),
            coordinator_bind_address=f"{'[::]' if job.is_remote else host}:{port}",
            cluster_detection_method=None if job.is_remote else "deactivate",
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
            f"{names} compiled a program that exchanges different data than the others: all would wait forever",
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
        leaf = data_of(leaf)
        for shard in leaf.addressable_shards:
            place = ",".join(
                f"{s.start or 0}:{s.stop if s.stop is not None else n}"
                for s, n in zip(shard.index, leaf.shape, strict=True)
            )
            name = f"out{jax.tree_util.keystr(path)}[{place}]"
            content = np.asarray(shard.data)
            found[name] = hashlib.sha256(f"{content.dtype}{content.shape}".encode() + content.tobytes()).hexdigest()
    return found


def _sample(subject: Subject, line: StartLine, options: Options) -> tuple[tuple[int, ...], tuple[int, ...]]:
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


# ---- start line ------------------------------------------------------------------------------------------------------
#
# Starts the processes together: when all have come, the first one names a time of its clock, and all wait for it with
# open eyes. So no process is woken, and the only difference is how late each reads the clock (the window of Hunold &
# Carpen-Amarie, IEEE TPDS 2016). Processes that waited for a message instead would leave a barrier a hundred
# microseconds apart.
#
# All processes of a host share one monotonic clock. Hosts have different clocks. So each process measures the
# difference between its own clock and the first one's. It sends many short messages there and back and takes the
# fastest. The times of the two directions are equal, up to an error of half the round trip (Cristian, Distributed
# Computing 3, 1989). That half is the reported bound on the error. The difference is measured before the samples and
# after them. In between it is taken as a straight line, since clocks drift apart by about 10 µs in a second.


LOOPBACK = "127.0.0.1"
LEAD_NS = 50_000
"""For each process, from the arrival of all to the start, in addition to the time of the messages."""
SPIN_NS = 3_000_000
"""A process waits this long before it offers its core to a process that might not have one. The times were tried
alternately on two busy cores (load 10). The median skew was 410 µs if the core is offered at once, and 0.05 to 0.08 µs
after 0.3 and 3 ms. Nine of ten starts were within 4 to 6 ms, 3 to 5 ms, and 0.15 ms."""
PINGS = 200
RETRY_S = 0.05
STOP = -1
NS = 1e9
_NUMBERS = struct.Struct("<qq")


def clock_id() -> int:
    """The same in all processes whose monotonic clocks are one: of this boot of this host. 0 is not known."""
    try:
        return UUID(Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()).int >> 65
    except OSError:
        return 0


@dataclass(frozen=True)
class ClockReading:
    """By how much the first process's clock is ahead of this one's, at a time of this one's."""

    at_ns: int
    ahead_ns: int
    error_ns: int
    """Half of the fastest way there and back; 0 where the clock is the same."""


class StartLine:
    """One process's place at it.

    Args:
        address: "HOST:PORT" of the first process, which listens there.
        clock: the same number in processes that share their clock; 0 is not known.

    Raises:
        NotMeasured: the others are not there within `patience_s`.
    """

    def __init__(self, address: str, rank: int, count: int, patience_s: float, clock: int) -> None:
        host, _, port = address.rpartition(":")
        self.rank, self.count, self.patience_s = rank, count, patience_s
        self._clock, self._started, self._lead_ns = clock, 0, count * LEAD_NS
        self._peers = self._accept(host, int(port)) if rank == 0 else {0: self._connect(host, int(port))}
        self.readings: list[ClockReading] = []
        self.align()

    def align(self) -> None:
        """Measures the clocks; all processes have to call it at once."""
        if self.rank == 0:
            for rank, peer in self._peers.items():
                self._answer_pings(rank, peer)
        else:
            self.readings.append(self._ping())

    def start(self, is_last: bool = False) -> int | None:
        """Waits for the others; nanoseconds of the clock when this process began. None: there are no more starts.

        Args:
            is_last: of the first process, which decides for all: no more are wanted.

        Raises:
            NotMeasured: one of the others is not there within `patience_s`; says which.
        """
        self._started += 1
        if self.rank:
            self._peers[0].send(self._started, 0)
            begin = self._peers[0].receive(self.patience_s, f"rank 0 did not come to start {self._started}")[1]
            begin -= self.readings[-1].ahead_ns if begin != STOP else 0
        else:
            for rank, peer in self._peers.items():
                peer.receive(self.patience_s, f"rank {rank} did not come to start {self._started}")
            begin = STOP if is_last else perf_counter_ns() + self._lead_ns
            for peer in self._peers.values():
                peer.send(self._started, begin)
        if begin == STOP:
            return None
        while (now := perf_counter_ns()) < begin:
            pass
        return now

    def to_common(self, times_ns: list[int]) -> tuple[int, ...]:
        """Converts times of this process's clock to the clock of the first process."""
        if not self.readings:
            return tuple(times_ns)
        first, last = self.readings[0], self.readings[-1]
        drift = (last.ahead_ns - first.ahead_ns) / max(1, last.at_ns - first.at_ns)
        return tuple(t + first.ahead_ns + round((t - first.at_ns) * drift) for t in times_ns)

    @property
    def error_s(self) -> float:
        """The largest possible error of `to_common`."""
        return max((reading.error_ns for reading in self.readings), default=0) / NS

    def close(self) -> None:
        for peer in self._peers.values():
            peer.close()

    # ---- the clocks

    def _answer_pings(self, rank: int, peer: _Peer) -> None:
        while True:
            number, usual_ns = peer.receive(self.patience_s, f"rank {rank} did not compare its clock")
            if number == STOP:
                self._lead_ns = max(self._lead_ns, self.count * LEAD_NS + 2 * usual_ns)
                return
            peer.send(number, perf_counter_ns())

    def _ping(self) -> ClockReading:
        peer, found = self._peers[0], list[tuple[int, int, int]]()
        for number in range(PINGS):
            before = perf_counter_ns()
            peer.send(number, 0)
            there = peer.receive(self.patience_s, "rank 0 did not compare its clock")[1]
            after = perf_counter_ns()
            found.append((after - before, before + (after - before) // 2, there))
        peer.send(STOP, sorted(took for took, _, _ in found)[PINGS // 2])
        took, middle, there = min(found)
        if peer.clock and peer.clock == self._clock:
            return ClockReading(middle, 0, 0)
        return ClockReading(middle, there - middle, took // 2)

    # ---- who is there

    def _accept(self, host: str, port: int) -> dict[int, _Peer]:
        found: dict[int, _Peer] = {}
        # On another host, its name may not resolve to its own address.
        own = host if host == LOOPBACK else ""
        with socket.create_server((own, port), backlog=self.count) as server:
            server.settimeout(self.patience_s)
            while len(found) < self.count - 1:
                try:
                    peer = _Peer(server.accept()[0])
                    rank, peer.clock = peer.receive(self.patience_s, "a rank did not say its name")
                except TimeoutError:
                    missing = [f"rank {r}" for r in range(1, self.count) if r not in found]
                    raise NotMeasured(
                        f"{', '.join(missing)} did not come to the start within {seconds(self.patience_s)}"
                    ) from None
                peer.send(0, self._clock)
                found[rank] = peer
        return dict(sorted(found.items()))

    def _connect(self, host: str, port: int) -> _Peer:
        try:
            peer = _Peer(connect(host, port, self.patience_s))
        except OSError as error:
            raise NotMeasured(f"rank 0 cannot be reached at {host}:{port}: {error}") from error
        peer.send(self.rank, self._clock)
        peer.clock = peer.receive(self.patience_s, "rank 0 did not say its name")[1]
        return peer


def connect(host: str, port: int, patience_s: float) -> socket.socket:
    """Tries until a process listens there. Raises `OSError` if none does in that time."""
    until = perf_counter_ns() + patience_s * NS
    while True:
        try:
            return socket.create_connection((host, port), timeout=patience_s)
        except OSError:
            if perf_counter_ns() > until:
                raise
            sleep(RETRY_S)


class _Peer:
    """A connection whose messages are waited for with open eyes."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        self._connection = connection
        self.clock = 0
        self.close = connection.close

    def send(self, number: int, other: int) -> None:
        # A few bytes, which the kernel accepts at once. Reading detects a lost peer.
        with contextlib.suppress(OSError):
            self._connection.send(_NUMBERS.pack(number, other))

    def receive(self, patience_s: float, otherwise: str) -> tuple[int, int]:
        """Raises `NotMeasured`, with `otherwise`, if nothing comes."""
        content, begun = b"", perf_counter_ns()
        while len(content) < _NUMBERS.size:
            try:
                part = self._connection.recv(_NUMBERS.size - len(content))
            except BlockingIOError:
                waited = perf_counter_ns() - begun
                if waited > patience_s * NS:
                    raise NotMeasured(f"{otherwise} within {seconds(patience_s)}") from None
                if waited > SPIN_NS:
                    # Not from the beginning: a process that yields its core just before the start comes back late.
                    os.sched_yield()
                continue
            except OSError as error:
                raise NotMeasured(f"{otherwise}: {error}") from error
            if not part:
                raise NotMeasured(f"{otherwise}: it has ended")
            content += part
        return _NUMBERS.unpack(content)
