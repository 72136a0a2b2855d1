"""Programs that a launcher has started: who they are, how they find one another, and a case whose ranks they run."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import psutil
import pytest

from benchax.errors import UsageError
from benchax.workers import ranks
from benchax.workers.ranks import Link, LostContact, Membership, find_crew, find_membership, first_host, gather, join

SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "node[007-008,011]",
    "SLURM_JOB_ID": "4097",
    "SLURM_STEP_ID": "2",
}
BY_HAND = {"JAX_COORDINATOR_ADDRESS": "10.0.0.1:7000", "JAX_NUM_PROCESSES": "2", "JAX_PROCESS_ID": "1"}


OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "2",
    "OMPI_MCA_orte_hnp_uri": "1531576320.0;tcp://10.96.0.1,10.148.0.1:34911",
}


@pytest.mark.parametrize(
    ("environ", "member"),
    [
        (SLURM, Membership(3, 4, "node007", 61443, "Slurm")),
        # An address is taken before the one that a launcher gives.
        (SLURM | {"JAX_COORDINATOR_ADDRESS": "login:9000"}, Membership(3, 4, "login", 9000, "Slurm")),
        # A batch script is one program. It has SLURM_PROCID and SLURM_NTASKS, too (seen with Slurm 22.05).
        ({name: value for name, value in SLURM.items() if not name.startswith("SLURM_STEP")}, None),
        # One task alone starts its ranks itself.
        (SLURM | {"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, None),
        (OPEN_MPI, Membership(1, 2, "10.96.0.1", 61440 + 1531576320 // 4096 % 4096, "Open MPI")),
        (BY_HAND, Membership(1, 2, "10.0.0.1", 7000, "JAX_NUM_PROCESSES")),
    ],
)
def test_a_program_knows_who_started_it_and_where_the_first_one_is(
    environ: dict[str, str], member: Membership | None
) -> None:
    assert find_membership(environ) == member


@pytest.mark.parametrize(
    ("nodes", "first"),
    [("vm", "vm"), ("a,b", "a"), ("n[001-015],b", "n001"), ("n[1,7-9]", "n1"), ("gpu-a[02],x", "gpu-a02")],
)
def test_the_first_host_of_a_list_of_slurm(nodes: str, first: str) -> None:
    assert first_host(nodes) == first


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"JAX_PROCESS_ID": "2"}, "JAX_PROCESS_ID='2' and JAX_NUM_PROCESSES='2' name no process"),
        ({"JAX_PROCESS_ID": "one"}, "JAX_PROCESS_ID='one' and JAX_NUM_PROCESSES='2' name no process"),
        ({"JAX_COORDINATOR_ADDRESS": "10.0.0.1"}, "JAX_COORDINATOR_ADDRESS='10.0.0.1' isn't an address"),
        ({"JAX_COORDINATOR_ADDRESS": "a:70000"}, "JAX_COORDINATOR_ADDRESS='a:70000' isn't an address"),
    ],
)
def test_variables_that_cannot_be(change: dict[str, str], problem: str) -> None:
    with pytest.raises(UsageError) as error:
        find_membership(BY_HAND | change)

    assert error.value.problem == problem


def test_another_number_than_the_launcher_has_started_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks.os, "environ", SLURM)

    with pytest.raises(UsageError) as error:
        find_crew(3)

    assert str(error.value) == "nprocs=3 is given, and Slurm has started 4 processes\nexpected --nprocs 4"


# ---- connections -----------------------------------------------------------------------------------------------------


@pytest.fixture
def first() -> Membership:
    return Membership(0, 2, "127.0.0.1", ranks.free_port("127.0.0.1"), "a test")


@pytest.fixture
def beside() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor() as pool:
        yield pool


def connected() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        there = socket.create_connection(server.getsockname())
        return server.accept()[0], there


def test_all_come_and_hear_of_one_another(first: Membership, beside: ThreadPoolExecutor) -> None:
    other: Future[Link] = beside.submit(join, replace(first, rank=1))
    links = gather(first)

    links[1].send(case="f", number=1)

    assert other.result().receive() == {"case": "f", "number": 1}
    assert (list(links), links[1].host) == ([1], socket.gethostname())
    links[1].close()
    other.result().close()


def test_who_does_not_come_is_named_and_an_address_where_nobody_listens(
    first: Membership, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks, "JOIN_S", 0.05)

    with pytest.raises(UsageError) as error:
        gather(replace(first, count=3))
    with pytest.raises(UsageError) as unreached:
        join(replace(first, rank=1))

    assert error.value.problem == f"rank 1, rank 2 of 3 ranks did not connect within 50.0 ms to 127.0.0.1:{first.port}"
    assert unreached.value.problem.startswith(f"rank 1 cannot reach rank 0 at 127.0.0.1:{first.port}: ")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"versions": {"benchax": "9"}}, "rank 1 on h has benchax 9, jax None"),
        ({"rank": 0}, "two processes claim to be rank 0"),
    ],
)
def test_who_cannot_take_part_is_refused_on_both_sides(
    first: Membership,
    beside: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, Any],
    problem: str,
) -> None:
    own = ranks.describe_self(first)
    monkeypatch.setattr(
        ranks, "describe_self", lambda m: own if m.rank == 0 else own | {"rank": 1, "host": "h"} | change
    )
    other = beside.submit(join, replace(first, rank=1))

    with pytest.raises(UsageError) as error:
        gather(first)

    with pytest.raises(UsageError) as there:
        other.result()
    assert error.value.problem.startswith(problem)
    assert there.value.problem == error.value.problem


def test_what_is_no_program_of_ours_is_let_go(first: Membership, beside: ThreadPoolExecutor) -> None:
    links = beside.submit(gather, first)

    def knock() -> None:
        while not links.done():
            try:
                with socket.create_connection((first.host, first.port), timeout=1) as stranger:
                    stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
                    assert stranger.recv(1) == b""
                    return
            except ConnectionResetError:  # how an end looks where some of that was not read
                return
            except OSError:
                continue

    knock()
    other = beside.submit(join, replace(first, rank=1))

    assert list(links.result()) == [1]
    assert other.result().host == socket.gethostname()
    links.result()[1].close()
    other.result().close()


def test_a_link_is_watched_by_the_kernel_and_one_that_has_ended_or_falls_silent_is_lost() -> None:
    mine, theirs = connected()
    here, there = Link(mine), Link(theirs)
    there.send(over=1)

    assert here.receive() == {"over": 1}
    assert mine.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    with pytest.raises(LostContact, match=r"the other host sent nothing for 50\.0 ms"):
        here.receive(0.05)
    there.close()
    with pytest.raises(LostContact, match="benchax on the other host has ended"):
        here.receive()
    here.close()


# ---- a case ----------------------------------------------------------------------------------------------------------


HERE = Path(__file__).parent
PATHS = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
COMMAND = [sys.executable, "-m", "benchax.cli.main", "run"]


@pytest.fixture
def start(tmp_path: Path) -> Any:
    """Starts both programs with these words; they end with the test."""
    address = f"127.0.0.1:{ranks.free_port('127.0.0.1')}"
    running: list[subprocess.Popen[str]] = []

    def start(
        *words: str, of_second: tuple[str, ...] | None = None, command: tuple[str, ...] = ()
    ) -> list[subprocess.Popen[str]]:
        for rank, (name, *more) in enumerate((words or [""], of_second or words or [""])):
            run = command or (*COMMAND, f"{HERE.parent / 'ranks_by_hand.py'}:{name}", *more)
            environ = dict(zip(ranks.BY_HAND, (address, "2", str(rank)), strict=True))
            environ = os.environ | environ | {"JAX_NUM_CPU_DEVICES": "2", "PYTHONPATH": PATHS}
            how: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            running.append(subprocess.Popen(run, cwd=tmp_path, env=environ, **how))
        return running

    yield start
    for process in running:
        process.kill()
        process.communicate()


def ask(name: str, *more: str) -> tuple[str, ...]:
    return (name, "f32[64@data]", "--mesh", "data=4", "--nprocs", "2", "--max-time", "0.2", *more)


@pytest.mark.slow
def test_the_first_program_makes_the_row_and_the_others_say_nothing(start: Any, tmp_path: Path) -> None:
    first, second = start(*ask("sums", "--json"), of_second=ask("sums", "--json", "--html", "page.html"))
    shown, _ = first.communicate()
    silent, _ = second.communicate()

    (row,) = map(json.loads, shown.splitlines())
    assert (first.returncode, second.returncode, silent) == (0, 0, "")
    assert [rank["rank"] for rank in row["ranks"]["ranks"]] == [0, 1]
    assert row["ranks"]["compared_outputs"] == 1
    assert len(row["ranks"]["barrier_skew_s"]) >= 10
    assert (row["environment"]["process_count"], row["environment"]["device_count"]) == (2, 4)
    assert len(list((tmp_path / ".benchmarks").glob("*.db"))) == 1
    assert not (tmp_path / "page.html").exists()


@pytest.mark.slow
def test_bench_in_both_programs_returns_a_row_which_is_empty_in_the_second(start: Any, tmp_path: Path) -> None:
    text = (
        "import benchax, jax.numpy as jnp\n"
        "row = benchax.bench(jnp.sin, 'f32[8]', options={'nprocs': 2}, max_time_s=0.1)\n"
        "print(row.failure, len(row.samples))"
    )
    (tmp_path / "script.py").write_text(text)

    ended = [each.communicate()[0].splitlines()[-1] for each in start(command=(sys.executable, "script.py"))]

    assert ended == ["None 1", "None 0"]


@pytest.mark.slow
def test_a_program_that_is_killed_is_named_and_nothing_of_it_is_left(start: Any) -> None:
    first, second = start(*ask("hangs", "--json", "--store", "off", "--timeout", "60"))
    _wait_for_trace(first)
    family = [second, *psutil.Process(second.pid).children(recursive=True)]
    second.send_signal(signal.SIGKILL)
    shown, _ = first.communicate()
    second.wait()

    failure = json.loads(shown)["failure"]
    assert failure["kind"] == "node_lost"
    assert failure["message"].startswith("rank 1 of 2 ranks: lost in ")
    gone, alive = psutil.wait_procs([each for each in family if isinstance(each, psutil.Process)], timeout=30)
    assert (first.returncode, alive) == (2, [])
    assert len(gone) == len(family) - 1


def _wait_for_trace(first: subprocess.Popen[str]) -> None:
    """Until its rank, a grandchild, is there: after that both have met."""
    children = psutil.Process(first.pid)
    while first.poll() is None and not children.children(recursive=True):
        pass


@pytest.mark.slow
def test_programs_that_were_given_other_cases_do_not_wait_for_one_another(start: Any) -> None:
    first, second = start(*ask("sums", "--store", "off"), of_second=ask("differs", "--store", "off"))
    shown, _ = first.communicate()
    _, said = second.communicate()

    assert "rank 1 is at case 'differs[mesh=data=4]', and rank 0 at case 'sums[mesh=data=4]'" in " ".join(shown.split())
    assert "expected the same command in each" in said
    assert (first.returncode, second.returncode) == (2, 2)


# ---- a case that Slurm starts --------------------------------------------------------------------------------------

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo")
START_S = 30.0

CONF = """\
ClusterName=benchax
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/linear
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
KillWait=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cores} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def find_skip_reason() -> str:
    """Why none can be started here; empty if one can."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    if missing:
        return f"needs Slurm, without {', '.join(missing)}: apt-get install slurm-wlm munge"
    return "" if os.geteuid() == 0 else "needs root, as whom Slurm's daemons run"


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:/usr/sbin"


class SlurmServer:
    """A Slurm of one node: the installed programs, with all their files in a temporary folder.

    In use as a context manager; `environ` is what its commands need.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environ = os.environ | {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": _path()}

    def __enter__(self) -> SlurmServer:
        """Raises `RuntimeError` where it does not start, with the last lines of its logs."""
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        text = CONF.format(host=socket.gethostname(), folder=self.folder, ports=_free_ports(2), cores=os.cpu_count())
        (self.folder / "slurm.conf").write_text(text)
        try:
            self._start_daemons()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        for name in ("slurmd", "slurmctld", "munged"):
            with contextlib.suppress(OSError, ValueError):
                pid = int((self.folder / f"{name}.pid").read_text())
                os.kill(pid, signal.SIGTERM)
                _wait_for(lambda pid=pid: not Path(f"/proc/{pid}").exists())

    def _start_daemons(self) -> None:
        at = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "munged.pid", "seed-file": "munge.seed"}
        munge = [f"--{option}={self.folder / name}" for option, name in at.items()]
        self._start("munged", "--force", f"--log-file={self.folder / 'munged.log'}", *munge)
        self._start("slurmctld")
        self._start("slurmd")
        if not _wait_for(self._is_idle):
            raise RuntimeError(self._logs())

    def _start(self, *command: str) -> None:
        # Not into a pipe, which the daemon would keep open.
        done = subprocess.run(
            command,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=START_S,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]} ended with exit code {done.returncode}. {self._logs()}")

    def _is_idle(self) -> bool:
        asked = ["sinfo", "--noheader", "--format=%T"]
        done = subprocess.run(asked, env=self.environ, capture_output=True, text=True, timeout=START_S, check=False)
        return done.stdout.strip() == "idle"

    def _logs(self) -> str:
        logs = (self.folder / name for name in ("slurmctld.log", "slurmd.log"))
        return " ".join(log.read_text()[-300:] for log in logs if log.exists())


def _wait_for(is_over: Callable[[], bool]) -> bool:
    until = monotonic() + START_S
    while not (found := is_over()) and monotonic() < until:
        sleep(0.1)
    return found


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        found = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in found:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in found]


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmServer]:
    if reason := find_skip_reason():
        pytest.skip(reason)
    with tempfile.TemporaryDirectory(prefix="benchax-slurm-") as folder, contextlib.ExitStack() as stack:
        try:
            server = stack.enter_context(SlurmServer(Path(folder)))
        except RuntimeError as error:
            pytest.skip(f"Slurm does not start here: {error}")
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["srun", "a batch script"])
def test_slurm_starts_both_programs_or_one_that_starts_both_ranks(
    slurm: SlurmServer, launcher: str, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_bytes((HERE.parent / "ranks_by_hand.py").read_bytes())
    name, *words = ask("sums", "--json", "--store", "off")
    command = [*COMMAND, f"mine.py:{name}", *words]
    if launcher == "srun":
        command = ["srun", "--ntasks=2", "--overcommit", *command]
    else:
        (tmp_path / "job.sh").write_text(f"#!/bin/bash\n{shlex.join(command)} > rows.json\n")
        command = ["sbatch", "--wait", "--ntasks=2", "--overcommit", "--output=log", "job.sh"]

    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=slurm.environ | {"JAX_NUM_CPU_DEVICES": "2"},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )

    said = done.stdout if launcher == "srun" else (tmp_path / "rows.json").read_text()
    assert done.returncode == 0, done.stderr
    (row,) = map(json.loads, said.splitlines())
    assert [rank["rank"] for rank in row["ranks"]["ranks"]] == [0, 1]
    assert row["environment"]["device_count"] == 4
