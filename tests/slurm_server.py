"""A Slurm of the tests' own, of one node: the installed programs, with all their files in a temporary folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

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
    """In use as a context manager; `environ` is what its commands need."""

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
