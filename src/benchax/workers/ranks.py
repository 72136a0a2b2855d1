"""Runs a case in several processes that make one program (`jax.distributed`), and ends all of them when one fails.

This host starts all processes. Or each process belongs to one of the programs that a launcher has started, on several
hosts. The first program leads. The others follow: each runs its rank of the same case, and has nothing to store or to
show.

Each rank is a worker in its own pool, so that it can be killed at any time and each limit holds. When one rank has
failed, the others cannot go on: they wait for it. They get a moment, since the first to complain need not be the first
to fail, and are then ended. The report names the rank that died first. If ranks are stuck, it names the rank that is
furthest behind; else the rank whose error came first.

A sample begins for all at one moment (`workers/rank.py`). Its time runs from the last
process's beginning to the last one's end. The scatter of the start is excluded and reported.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import platform
import queue
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from time import monotonic
from typing import Any

from benchax.case import Case
from benchax.environment import at_commit_of, capture, count_cores
from benchax.errors import UsageError
from benchax.json_values import decode_value, encode_value
from benchax.machine import noise
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.record import Progress, RemoteRow
from benchax.model import (
    Absent,
    Devices,
    Environment,
    Failure,
    Measurement,
    Options,
    Ranks,
    RankTimes,
    Remark,
    Samples,
)
from benchax.units import percent, plural, seconds
from benchax.workers import pickling
from benchax.workers.channel import Channel, Closed, Garbled
from benchax.workers.conversation import Listener
from benchax.workers.pool import Pool
from benchax.workers.rank import JOIN_S, LOOPBACK, NS, STEPS, RankAnswer, RankJob, connect, measure_rank, usual
from benchax.workers.task import START_S, CallLimits

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
        reading, remote = noise.start(), RemoteRow(progress)
        count, name = options.nprocs or 1, f"case {case.id.label!r}"
        try:
            packed = pickling.dumps(pickling.seal(case, name))
        except UsageError as error:
            environment = capture(case.folder, with_jax=False)
            return remote.row(case.id, environment, options, run_id, diagnose(error, "start"))
        make_job = partial(RankJob, packed, options, count=count, patience_s=options.timeout_s or PATIENCE_S)
        ended = find_crew(count).run(name, count, make_job, remote.listen)
        environment = capture(case.folder, with_jax=False)
        row = remote.row(case.id, environment, options, run_id)
        if any(isinstance(each.answer, Failure) for each in ended):
            return replace(row, failure=find_root_cause(ended, count), noise=noise.finish(reading))
        ranks = sorted(ended, key=lambda each: each.rank)
        answers = [each.answer for each in ranks if isinstance(each.answer, RankAnswer)]
        return replace(_fill(row, answers, environment), noise=noise.finish(reading)) if answers else row


# ---- the row ----------------------------------------------------------------------------------------------------


def _fill(row: Measurement, answers: Sequence[RankAnswer], environment: Environment) -> Measurement:
    failure = _disagreement(answers)
    ranks, samples, absent = _times(answers)
    return replace(
        row,
        environment=at_commit_of(environment, answers[0].environment),
        failure=failure,
        samples=samples if failure is None else (),
        ranks=ranks,
        remarks=_remarks(row.devices, ranks, samples, answers),
        not_measured=(*row.not_measured, *absent, *_NOT_OF_RANKS),
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
        most = usual(list(held.values()))
        odd = [f"rank {rank}" for rank, digest in held.items() if digest != most]
        if odd:
            others = ", ".join(f"rank {rank}" for rank, digest in held.items() if digest == most)
            text = f"{' and '.join(odd)}: {name} differs from that of {others}"
            return Failure("wrong_output", "first run", text, "The result must not depend on the process.")
    return None


def _times(answers: Sequence[RankAnswer]) -> tuple[Ranks, tuple[Samples, ...], tuple[Absent, ...]]:
    each = answers[0].local_devices
    names = [name for answer in answers for name in answer.pieces]
    shared = sum(names.count(name) > 1 for name in set(names))
    plain = tuple(RankTimes(a.rank, a.host, (), a.compile_s) for a in answers)
    if not answers[0].begun_ns:
        return Ranks(plain, each, (), shared), (), (Absent("samples", "only the first run was requested"),)
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
    # The scatter of the start is not in a sample, but it shifted who waited for whom.
    disturbed = tuple(s + error_s > SKEW_SHARE * t for s, t in zip(skew, slowest, strict=True))
    return Ranks(times, each, skew, shared), (Samples(TIMER, 1, slowest, disturbed, answers=text, stop="time"),), ()


def _remarks(
    devices: Devices | None, ranks: Ranks, samples: Sequence[Samples], answers: Sequence[RankAnswer]
) -> tuple[Remark, ...]:
    found = list[Remark]()
    if devices is not None and devices.is_fake:
        text = f"{devices.count} fake devices share {plural(count_cores(), 'core')} of this CPU: "
        found.append(Remark("fake-devices", "warning", text + "times do not match real devices"))
    for host in dict.fromkeys(answer.host for answer in answers):
        own = [answer for answer in answers if answer.host == host]
        # A launcher can bind each of them to its own core.
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


# ---- the ranks of a case ---------------------------------------------------------------------------------------------


GRACE_S = 2.0
"""For the others to fail after the first."""


@dataclass(frozen=True)
class RankEnd:
    """The result of one rank."""

    rank: int
    answer: RankAnswer | Failure
    step: str
    at: float


@cache
def rank_pool(place: int) -> Pool:
    """The pool of a rank that runs here, by its place among them. It stays for the next case, since importing JAX takes
    a second. It does one job at a time; a fork of a process that has run nothing of JAX knows no backend yet."""
    return Pool(warm=False, reuse=False, preload=("benchax.workers.rank",))


def call_rank(pool: Pool, job: RankJob, name: str, on_message: Listener) -> RankAnswer | Failure:
    """Runs a rank here, in a worker of `pool`."""
    patience_s, sampling_s = job.patience_s, job.options.max_time_s
    limits = CallLimits(
        lambda step: max(START_S, patience_s) if step in ("start", "connect") else patience_s + sampling_s,
        memory_bytes=job.options.memory_limit_bytes,
    )
    is_shown = job.rank == 0
    return pool.call(measure_rank, job, limits, name=name, shows_output=is_shown, on_message=on_message)


def run_together(
    calls: Mapping[int, Callable[[Listener], RankAnswer | Failure]],
    listen: Listener,
    grace_s: float,
    end: Callable[[], None],
) -> list[RankEnd]:
    """Returns the result of each rank that has ended, in a thread for each.

    Args:
        calls: by rank: runs it, and raises `LostContact` if nothing will be heard of it any more.
        listen: told each announcement of the first rank.
        grace_s: the time for the others after the first failure.
        end: ends all that still run; called unless all have ended well.
    """
    steps = dict.fromkeys(calls, "start")
    found: queue.Queue[RankEnd] = queue.Queue()

    def note(rank: int, message: dict[str, Any]) -> None:
        steps[rank] = message["stage"]
        if rank == 0:
            listen(message)

    def run(rank: int) -> None:
        try:
            answer = calls[rank](partial(note, rank))
        except Exception as error:  # whatever it is: else the others would wait for this rank forever
            kind = "node_lost" if isinstance(error, LostContact) else "error"
            answer = Failure(kind, steps[rank], f"lost in {steps[rank]}: {error}")
        found.put(RankEnd(rank, answer, steps[rank], monotonic()))

    ended: list[RankEnd] = []
    until: float | None = None
    try:
        for rank in calls:
            threading.Thread(target=run, args=(rank,), daemon=True).start()
        while len(ended) < len(calls):
            ended.append(found.get(timeout=None if until is None else max(0.0, until - monotonic())))
            if until is None and isinstance(ended[-1].answer, Failure):
                until = monotonic() + grace_s
    except queue.Empty:  # the others had their time to fail, too
        pass
    finally:
        if until is not None or len(ended) < len(calls):
            end()
    return ended


def find_root_cause(ended: Sequence[RankEnd], count: int) -> Failure:
    """The failure of the rank that the others failed because of, under its name."""
    failures = sorted(
        ((each, each.answer) for each in ended if isinstance(each.answer, Failure)), key=lambda pair: pair[0].at
    )
    chosen = failures[:1]
    # JAX aborts the others when the first rank, which connects them, has ended by an error.
    if not _is_own(*failures[0]):
        dead = [each for each in failures if each[1].kind in ("crashed", "out_of_memory", "node_lost")]
        stuck = [each for each in failures if each[1].kind == "timeout"]
        behind = min((_place(each.step) for each, _ in stuck), default=0)
        # Ranks that are stuck at the same step look the same: one of them keeps the others waiting.
        chosen = dead[:1] or [each for each in stuck if _place(each[0].step) == behind] or chosen
    first = chosen[0][1]
    who = " and ".join(f"rank {rank}" for rank in sorted(end.rank for end, _ in chosen))
    return replace(first, message=f"{who} of {plural(count, 'rank')}: {first.message}")


def _is_own(end: RankEnd, failure: Failure) -> bool:
    """Up to lowering nothing is exchanged: what goes wrong there is of no other rank's doing."""
    return failure.kind == "error" and _place(end.step) <= STEPS.index("lower")


def _place(step: str) -> int:
    return STEPS.index(step) if step in STEPS else len(STEPS)


# ---- programs that a launcher has started ----------------------------------------------------------------------------
#
# A launcher is Slurm's srun, Open MPI's mpirun, or a user. Launchers set the same environment variables that JAX itself
# reads (`jax.distributed.initialize`). A user who starts the programs by hand sets JAX_COORDINATOR_ADDRESS, which JAX
# knows, and also JAX_NUM_PROCESSES and JAX_PROCESS_ID.
#
# The first program leads. It announces the next case and the meeting point of its ranks, receives each step and each
# end, and makes the row. The others run their rank and report the result. The kernels of their hosts ask one another
# every second. So a host that is cut off is noticed.
#
# There is no password, as in `jax.distributed`: such a network counts as private. Messages are read as JSON, and
# nothing in them is run.


PORTS = 61440, 4096
"""The first, and how many: as JAX chooses one by the number of the job."""
BY_HAND = ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID")
_ADDRESS = re.compile(r"(?P<host>[^\s/:]+):(?P<port>\d{1,5})")


@dataclass(frozen=True)
class Membership:
    """Which one of how many this program is, and where the first one listens."""

    rank: int
    count: int
    host: str
    port: int
    launcher: str


def find_membership(environ: Mapping[str, str]) -> Membership | None:
    """None if this program was started alone.

    Raises:
        UsageError: variables that contradict one another, or that say no address.
    """
    for find in (_by_hand, _by_slurm, _by_open_mpi):
        found = find(environ)
        if found is not None and found.count > 1:
            return found
    return None


def _by_hand(environ: Mapping[str, str]) -> Membership | None:
    address, count, rank = BY_HAND
    if count not in environ and rank not in environ:
        return None
    numbers = environ.get(rank, ""), environ.get(count, "")
    if not all(number.isdecimal() for number in numbers) or int(numbers[0]) >= int(numbers[1]):
        raise UsageError(
            f"{rank}={numbers[0]!r} and {count}={numbers[1]!r} name no process",
            f"{rank} from 0 to {count} - 1, and {address}=HOST:PORT of process 0",
        )
    return Membership(int(numbers[0]), int(numbers[1]), *_read_address(environ, ""), "JAX_NUM_PROCESSES")


def _by_slurm(environ: Mapping[str, str]) -> Membership | None:
    # Set in a job step, which srun starts. A batch script itself is one program, whatever SLURM_NTASKS says.
    names = ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NODELIST", "SLURM_JOB_ID", "SLURM_STEP_ID")
    if any(name not in environ for name in names):
        return None
    rank, count, nodes, job, step = (environ[name] for name in names)
    first, several = PORTS
    port = first + (int(job) + int(step)) % several
    return Membership(int(rank), int(count), *_read_address(environ, f"{first_host(nodes)}:{port}"), "Slurm")


def _by_open_mpi(environ: Mapping[str, str]) -> Membership | None:
    if "OMPI_COMM_WORLD_RANK" not in environ:
        return None
    # From mpirun, for example 1531576320.0;tcp://10.96.0.1,10.148.0.1:34911. By default, mpirun starts rank 0 on its
    # own host.
    uri = re.match(r"(?P<job>\d+)\.\d+;tcp://(?P<host>[^,:]+)", environ.get("OMPI_MCA_orte_hnp_uri", ""))
    first, several = PORTS
    usual = f"{uri['host']}:{first + int(uri['job']) // 4096 % several}" if uri else ""
    rank, count = int(environ["OMPI_COMM_WORLD_RANK"]), int(environ["OMPI_COMM_WORLD_SIZE"])
    return Membership(rank, count, *_read_address(environ, usual), "Open MPI")


def first_host(nodes: str) -> str:
    """node001 of node001,host2; node[001-015],host2; node[001,007-015]."""
    match = re.match(r"(?P<name>[^\[,]+)(?:\[(?P<number>\d+))?", nodes)
    return f"{match['name']}{match['number'] or ''}" if match else nodes


def _read_address(environ: Mapping[str, str], usual: str) -> tuple[str, int]:
    text = environ.get(BY_HAND[0], usual)
    match = _ADDRESS.fullmatch(text)
    if match is None or not 0 < int(match["port"]) < 65536:
        raise UsageError(
            f"{BY_HAND[0]}={text!r} isn't an address", "HOST:PORT of process 0, which the others reach, the same in all"
        )
    return match["host"], int(match["port"])


# ---- connections -----------------------------------------------------------------------------------------------------


SEND_S = 15.0
"""For another program to take a message. A busy machine can keep it from running for seconds."""
SILENT_S = 5
"""A host whose kernel does not answer for this long counts as lost."""
WATCHED = {
    "TCP_NODELAY": 1,
    "TCP_KEEPIDLE": 1,
    "TCP_KEEPINTVL": 1,
    "TCP_KEEPCNT": SILENT_S - 1,
    "TCP_USER_TIMEOUT": 1000 * SILENT_S,
}
"""Options of a connection: its kernel asks the other one every second, however busy both programs are."""
VERSIONS = ("benchax", "jax", "jaxlib")


class LostContact(Exception):
    """Nothing will be heard of the other one any more; says why."""


class Link:
    """A connection between two of the programs."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in WATCHED.items():
            if hasattr(socket, option):  # each system has its own
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
        self._channel = Channel(connection)
        self._sending, self._asking = threading.Lock(), threading.Lock()
        self.host = "the other host"
        self.close = self._channel.close

    def send(self, **message: Any) -> None:
        """Never raises; the listener reports a lost peer."""
        with self._sending, contextlib.suppress(Closed, TimeoutError):
            self._channel.send(message, timeout_s=SEND_S)

    def receive(self, timeout_s: float | None = None) -> dict[str, Any]:
        """The next message. Raises `LostContact`."""
        try:
            message = self._channel.receive(timeout_s)
        except Closed as error:
            is_cut = isinstance(error.__cause__, OSError) and not isinstance(error.__cause__, ConnectionError)
            why = f"{self.host} does not answer" if is_cut else f"benchax on {self.host} has ended"
            raise LostContact(why) from None
        except (Garbled, ValueError, LookupError, TypeError) as error:
            raise LostContact(f"the connection to {self.host} is broken") from error
        if message is None:
            raise LostContact(f"{self.host} sent nothing for {seconds(timeout_s or 0.0)}")
        return message.document

    def ask(self, on_message: Listener, **order: Any) -> RankAnswer | Failure:
        """The result of the rank there, for the case that has this order. Raises `LostContact`."""
        with self._asking:  # until the rank of the case before has ended
            self.send(**order)
            while True:
                match self.receive():
                    case {"number": number, "said": said} if number == order["number"]:
                        on_message(said)
                    case {"number": number, "failure": failure} if number == order["number"]:
                        return decode_value(failure, Failure)
                    case {"number": number, "answer": answer} if number == order["number"]:
                        return decode_value(answer, RankAnswer)


def describe_self(member: Membership) -> dict[str, Any]:
    """The first message of a program."""
    versions = {name: importlib.metadata.version(name) for name in VERSIONS}
    versions["python"] = ".".join(platform.python_version_tuple()[:2])
    return {"rank": member.rank, "host": socket.gethostname(), "versions": versions}


def gather(member: Membership) -> dict[int, Link]:
    """Returns the links to all others, by rank. Only the first program calls it.

    Raises:
        UsageError: some do not come, or have other versions.
    """
    found: dict[int, Link] = {}
    own, until, problem = describe_self(member), monotonic() + JOIN_S, ""
    try:
        server = socket.create_server(("", member.port), backlog=member.count)
    except OSError as error:
        raise UsageError(
            f"port {member.port} cannot be listened at: {error}", "a free one, by JAX_COORDINATOR_ADDRESS=HOST:PORT"
        ) from error
    with server:
        while not problem and (missing := [f"rank {rank}" for rank in range(1, member.count) if rank not in found]):
            link, hello = _accept(server, until, own)
            if link is None:
                problem = (
                    f"{', '.join(missing)} of {plural(member.count, 'rank')} did not connect within {seconds(JOIN_S)} "
                    f"to {member.host}:{member.port}"
                )
            else:
                problem = _find_problem(own, hello, found)
                link.host = hello["host"]
                found[hello["rank"]] = link
    for link in found.values():
        link.send(welcome=own["host"], refused=problem)
        if problem:
            link.close()
    if problem:
        raise UsageError(problem, "the same command and environment in each process, and a network between them")
    return dict(sorted(found.items()))


def _accept(server: socket.socket, until: float, own: dict[str, Any]) -> tuple[Link | None, dict[str, Any]]:
    """The next program, and what it says first; None if no program comes until then."""
    while (rest_s := until - monotonic()) > 0:
        server.settimeout(rest_s)
        with contextlib.suppress(TimeoutError):
            link = Link(server.accept()[0])
            try:
                if (hello := link.receive(SEND_S)).keys() == own.keys():
                    return link, hello
            except LostContact:  # it is no program of ours
                pass
            link.close()
    return None, {}


def _find_problem(own: dict[str, Any], hello: dict[str, Any], found: dict[int, Link]) -> str:
    rank = hello["rank"]
    if rank in found or rank == 0:
        return f"two processes claim to be rank {rank}"
    odd = [name for name, version in own["versions"].items() if hello["versions"].get(name) != version]
    there = ", ".join(f"{name} {hello['versions'].get(name)}" for name in odd)
    here = ", ".join(f"{name} {own['versions'][name]}" for name in odd)
    return f"rank {rank} on {hello['host']} has {there}, and rank 0 has {here}" if odd else ""


def join(member: Membership) -> Link:
    """Returns the link to the first program. All other programs call it.

    Raises:
        UsageError: nothing answers there, or it refuses.
    """
    where = f"{member.host}:{member.port}"
    try:
        link = Link(connect(member.host, member.port, JOIN_S))
    except OSError as error:
        raise UsageError(
            f"rank {member.rank} cannot reach rank 0 at {where}: {error}",
            "the same command in each process, and a port that is open between the hosts",
        ) from error
    link.send(**describe_self(member))
    try:
        answer = link.receive()  # the first one waits for all
    except LostContact as error:
        answer = {"refused": f"rank {member.rank} was dismissed by rank 0 at {where}: {error}"}
    if answer["refused"]:
        link.close()
        raise UsageError(answer["refused"])
    link.host = answer["welcome"]
    return link


def free_port(host: str = "") -> int:
    """Returns a port that is free now, on this address of this host, or on all its addresses."""
    with socket.socket() as found:
        found.bind((host, 0))
        return found.getsockname()[1]


# ---- the ranks under them -----------------------------------------------------------------------------------------


GRACE_OF_HOSTS_S = SILENT_S + 1.0
"""As GRACE_S, over the network: longer than it takes to notice that a host is lost."""
LAST_WORDS_S = 0.2
"""For a rank that has answered to come to its end: then its pool serves the next case."""
JobMaker = Callable[..., RankJob]
"""Makes the job of a `rank`, from the `address` where JAX connects them, the address of the start `line`, and
`is_remote`."""


class Leader:
    """The first of the programs, and its links to the others. Without a launcher, it starts all ranks itself."""

    def __init__(self, member: Membership | None) -> None:
        self.host = LOOPBACK if member is None else member.host
        self.links = {} if member is None else gather(member)
        self.number = 0

    def run(self, name: str, count: int, make_job: JobMaker, listen: Listener) -> list[RankEnd]:
        """Returns the result of each rank of this case; no rank runs on afterwards, whatever happens.

        Args:
            listen: told each announcement of the first rank.
        """
        is_remote = bool(self.links)
        jax_at, line_at = (f"{self.host}:{free_port('' if is_remote else LOOPBACK)}" for _ in range(2))
        self.number += 1
        order = {"case": name, "number": self.number, "jax": jax_at, "line": line_at}
        calls: dict[int, Callable[[Listener], RankAnswer | Failure]]
        calls = {rank: partial(link.ask, **order) for rank, link in self.links.items()}
        here = [rank for rank in range(count) if rank not in calls]
        pools = [rank_pool(place) for place in range(len(here))]
        for rank, pool in zip(here, pools, strict=True):
            job = make_job(rank=rank, address=jax_at, line=line_at, is_remote=is_remote)
            calls[rank] = partial(call_rank, pool, job, name)

        def end() -> None:
            for pool in pools:
                pool.close()

        try:
            return run_together(calls, listen, GRACE_OF_HOSTS_S if is_remote else GRACE_S, end)
        finally:
            for link in self.links.values():
                link.send(over=self.number)


class Follower:
    """Any other of the programs, and its link to the first."""

    def __init__(self, member: Membership) -> None:
        self.member = member
        self.link = join(member)

    def run(self, name: str, count: int, make_job: JobMaker, listen: Listener) -> list[RankEnd]:
        """Runs the rank of this program, until the first one says that the case is over. That one has the results.

        Raises:
            UsageError: the first one is lost, or has another case.
        """
        order = self._await("case")
        rank, number = self.member.rank, order["number"]
        if order["case"] != name:
            problem = UsageError(f"rank {rank} is at {name}, and rank 0 at {order['case']}", "the same command in each")
            self.link.send(number=number, failure=encode_value(Failure("error", "start", problem.problem), Failure))
            raise problem
        job = make_job(rank=rank, address=order["jax"], line=order["line"], is_remote=True)
        pool = rank_pool(0)

        def run() -> None:
            answer = call_rank(pool, job, name, tell)
            kind, hint = ("failure", Failure) if isinstance(answer, Failure) else ("answer", RankAnswer)
            self.link.send(number=number, **{kind: encode_value(answer, hint)})

        def tell(message: dict[str, Any]) -> None:
            self.link.send(number=number, said={"stage": message["stage"]})

        running = threading.Thread(target=run, daemon=True)
        running.start()
        try:
            self._await("over")
            running.join(LAST_WORDS_S)
        finally:
            if running.is_alive():
                pool.close()
            running.join()
        return []

    def _await(self, word: str) -> dict[str, Any]:
        """The next message of the first program that has this word. Raises `UsageError` if that program is lost."""
        try:
            while word not in (message := self.link.receive()):
                pass
        except LostContact as error:
            raise UsageError(f"rank 0 is lost: {error}", "a first process that stays until the end") from error
        return message


def find_crew(count: int) -> Leader | Follower:
    """Returns the crew that runs the ranks of a case of `count` processes.

    Raises:
        UsageError: a launcher has started another number of processes, or not all of them come.
    """
    member = find_membership(os.environ)
    if member is not None and member.count != count:
        raise UsageError(
            f"nprocs={count} is given, and {member.launcher} has started {member.count} processes",
            f"--nprocs {member.count}",
        )
    return _crew_of(member)


@cache
def _crew_of(member: Membership | None) -> Leader | Follower:
    return Leader(member) if member is None or member.rank == 0 else Follower(member)


def is_following(options: Sequence[Options]) -> bool:
    """Has a launcher started this program together with others, is it not the first, and do cases run in all?"""
    member = find_membership(os.environ)
    return member is not None and member.rank > 0 and any(each.nprocs for each in options)
