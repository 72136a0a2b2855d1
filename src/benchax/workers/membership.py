"""Finds whether this program is one of several that a launcher has started: Slurm's srun, Open MPI's mpirun, or a user.

Launchers set the same environment variables that JAX itself reads (`jax.distributed.initialize`). A user who starts the
programs by hand sets JAX_COORDINATOR_ADDRESS, which JAX knows, and also JAX_NUM_PROCESSES and JAX_PROCESS_ID.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from benchax.errors import UsageError

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
