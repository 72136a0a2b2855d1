"""Connects the programs that a launcher has started on several hosts, one for each rank.

A launcher is Slurm's srun, Open MPI's mpirun, or a user. Launchers set the same environment variables that JAX itself
reads (`jax.distributed.initialize`). A user who starts the programs by hand sets JAX_COORDINATOR_ADDRESS, which JAX
knows, and also JAX_NUM_PROCESSES and JAX_PROCESS_ID.

The first program leads. It announces the next case and the meeting point of its ranks, receives each step and each end,
and makes the row. The others run their rank and report the result. Each sends its messages as lines of JSON, and an
empty line every second. So the silent connection of a host that is cut off is noticed.

There is no password, as in `jax.distributed`: such a network counts as private. Messages are read as JSON, and nothing
in them is run.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import json
import platform
import re
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import monotonic, sleep
from typing import Any

from benchax.errors import UsageError
from benchax.units import plural, seconds

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
    # Of a step, which srun starts: a batch script itself is one program, whatever SLURM_NTASKS says.
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
    # 1531576320.0;tcp://10.96.0.1,10.148.0.1:34911: of mpirun, which starts rank 0 on its own host if nobody objects.
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
            f"{BY_HAND[0]}={text!r} is no address", "HOST:PORT of process 0, which the others reach, the same in all"
        )
    return match["host"], int(match["port"])


# ---- connections -----------------------------------------------------------------------------------------------------


JOIN_S = 60.0
"""For all programs to come."""
BEAT_S = 1.0
SILENCE_S = 15.0
"""A program that is silent for this long counts as lost. A busy machine can keep a program from running for seconds."""
RETRY_S = 0.1
VERSIONS = ("benchax", "jax", "jaxlib")


class LostContact(Exception):
    """Nothing will be heard of the other one any more; says why."""


class Link:
    """A connection between two of the programs."""

    def __init__(self, connection: socket.socket) -> None:
        connection.settimeout(SILENCE_S)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection, self._lines = connection, connection.makefile("rb")
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self.heard_at = monotonic()
        self.rank, self.host = 0, "the other host"
        threading.Thread(target=self._beat, daemon=True).start()

    def send(self, **message: Any) -> None:
        """Never raises; the listener reports a lost peer."""
        with self._lock, contextlib.suppress(OSError):
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> dict[str, Any]:
        """The next message. Raises `LostContact`."""
        while True:
            try:
                line = self._lines.readline()
                message = json.loads(line) if line.endswith(b"\n") else None
            except TimeoutError:
                raise LostContact(f"nothing was heard of {self.host} for {seconds(SILENCE_S)}") from None
            except (OSError, ValueError) as error:
                raise LostContact(f"the connection to {self.host} is broken: {error}") from error
            if not isinstance(message, dict):
                raise LostContact(f"benchax on {self.host} has ended")
            self.heard_at = monotonic()
            if message:
                return message

    def close(self) -> None:
        self._is_closed.set()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _beat(self) -> None:
        while not self._is_closed.wait(BEAT_S):
            self.send()


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
    own, until = describe_self(member), monotonic() + JOIN_S
    try:
        server = socket.create_server(("", member.port), backlog=member.count)
    except OSError as error:
        raise UsageError(
            f"port {member.port} cannot be listened at: {error}", "a free one, by JAX_COORDINATOR_ADDRESS=HOST:PORT"
        ) from error
    with server:
        while len(found) < member.count - 1:
            server.settimeout(max(0.01, until - monotonic()))
            link = None
            try:
                link = Link(server.accept()[0])
                hello = link.receive()
            except (TimeoutError, LostContact):
                if link is not None:
                    link.close()
                if monotonic() < until:
                    continue
                missing = [f"rank {rank}" for rank in range(1, member.count) if rank not in found]
                reason = f"{', '.join(missing)} of {plural(member.count, 'rank')} did not come within {seconds(JOIN_S)}"
                _refuse(found, reason)
                raise UsageError(
                    f"{reason} to {member.host}:{member.port}", "the same command in each process, and a network"
                ) from None
            if set(hello) != set(own):
                link.close()  # no program of ours
                continue
            link.rank, link.host = hello["rank"], hello["host"]
            problem = _find_problem(own, hello, found)
            found[link.rank] = link
            if problem:
                _refuse(found, problem)
                raise UsageError(problem, "the same environment for each rank, and a rank for each")
    for link in found.values():
        link.send(welcome=own["host"])
    return dict(sorted(found.items()))


def _find_problem(own: dict[str, Any], hello: dict[str, Any], found: dict[int, Link]) -> str:
    rank = hello["rank"]
    if rank in found or rank == 0:
        return f"two processes say that they are rank {rank}"
    odd = [name for name, version in own["versions"].items() if hello["versions"].get(name) != version]
    there = ", ".join(f"{name} {hello['versions'].get(name)}" for name in odd)
    here = ", ".join(f"{name} {own['versions'][name]}" for name in odd)
    return f"rank {rank} on {hello['host']} has {there}, and rank 0 has {here}" if odd else ""


def _refuse(found: dict[int, Link], reason: str) -> None:
    for link in found.values():
        link.send(refused=reason)


def join(member: Membership) -> Link:
    """Returns the link to the first program. All other programs call it.

    Raises:
        UsageError: nothing answers there, or it refuses.
    """
    where, until = f"{member.host}:{member.port}", monotonic() + JOIN_S
    while True:
        try:
            connection = socket.create_connection((member.host, member.port), timeout=JOIN_S)
            break
        except OSError as error:
            if monotonic() > until:
                raise UsageError(
                    f"rank {member.rank} cannot reach rank 0 at {where}: {error}",
                    "the same command in each process, and a port that is open between the hosts",
                ) from error
            sleep(RETRY_S)
    link = Link(connection)
    link.send(**describe_self(member))
    try:
        # The first one waits for all: its beats come meanwhile.
        answer = link.receive()
    except LostContact as error:
        raise UsageError(f"rank {member.rank} was let go by rank 0 at {where}: {error}") from error
    if "refused" in answer:
        raise UsageError(answer["refused"])
    link.host = answer["welcome"]
    return link


def listen(link: Link, take: Callable[[dict[str, Any]], None], lose: Callable[[str], None]) -> threading.Thread:
    """Has a thread of its own take each message, until the other one is lost."""

    def run() -> None:
        try:
            while True:
                take(link.receive())
        except LostContact as error:
            lose(str(error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def free_port(host: str = "") -> int:
    """Returns a port that is free now, on this address of this host, or on all its addresses."""
    with socket.socket() as found:
        found.bind((host, 0))
        return found.getsockname()[1]
