"""The keeper of the workers: a process that has imported JAX, started no backend, and forks one worker after the other.

A fork of it is a process in which everything is imported (10 ms instead of 1 s) and nothing of JAX has run yet. It is
the parent of all workers, adopts the processes that they leave behind, and ends them all. It does so on request, and
when the program that started it is gone, for whatever reason. So no process of benchax outlives the program that used
it.

If forking is not possible or not safe (no `fork`, or importing left threads), workers are started as new processes. The
rest is the same.

It talks to `keeper.py` over standard input, which is a socket:

    {"start": n} with two descriptors (connection, output)   ⇒   {"started": n, "pid": pid, "how": "fork" | "spawn"}
    {"ask": pid}: it writes where it is to its output
    {"kill": pid}, and all that descends from it              ⇒   {"killed": pid}
                                                    unasked   ⇒   {"ended": pid, "status": exit code or minus signal}

Status and orphans are reported in order: after {"killed"}, nothing of that worker is left.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Sequence
from time import monotonic, sleep
from typing import NoReturn

import psutil

from benchax.subprocesses import children, descendants
from benchax.workers import process_tree, worker
from benchax.workers.channel import Channel, Closed, Message, take_over_stdin, wait_readable

PATIENCE_S = 10.0
"""A killed process that the kernel holds on to (a dead network drive) is given up after this long."""


def main() -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the program, which then ends what it must
    for module in json.loads(sys.argv[3]):  # after argv[1], the paths, and argv[2], how workers are started
        with contextlib.suppress(Exception):  # the job that needs it says so
            importlib.import_module(module)
    zygote = Zygote(take_over_stdin(), can_fork=_can_fork(sys.argv[2]))
    try:
        zygote.serve()
    finally:
        zygote.end_everything()
        os._exit(0)


def _can_fork(how: str) -> bool:
    """Threads do not survive a fork, but the locks that they hold do."""
    # Forks of a process whose backend had started hung each time (jax 0.10.2, 13 to 16 threads).
    if how == "spawn" or sys.platform != "linux" or psutil.Process().num_threads() > 1:
        return False
    gc.collect()
    gc.freeze()  # the workers' collector shall not touch, and thereby copy, what they share
    return True


class Zygote:
    def __init__(self, control: Channel, can_fork: bool) -> None:
        self.control = control
        self.can_fork = can_fork
        self.workers: set[int] = set()
        self.spawned: dict[int, subprocess.Popen[bytes]] = {}
        process_tree.adopt_orphans()
        self.wake = self._wake_on_end_of_child()
        self.parent = _handle_of(os.getppid())

    def _wake_on_end_of_child(self) -> int:
        waiting, signalling = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        os.set_blocking(waiting, False)
        os.set_blocking(signalling, False)
        signal.set_wakeup_fd(signalling, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a signal without a handler would write nothing there
        return waiting

    def serve(self) -> None:
        """Until whoever started this process is gone."""
        sources = [self.control, self.wake, *([] if self.parent is None else [self.parent])]
        # Its end of the connection may live on in a process that it forked; its own end is what counts.
        while self.parent not in (ready := wait_readable(sources, None)):
            if self.wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self.wake, 4096)
                self.reap()
            if self.control in ready:
                try:
                    self.control.take()
                    while (message := self.control.pop()) is not None:
                        self.answer(message)
                except Closed:
                    return

    def answer(self, message: Message) -> None:
        if "start" in message.document:
            self.start(message.document["start"], message.fds)
        elif "ask" in message.document:
            self.ask(message.document["ask"])
        else:
            self.kill(message.document["kill"])

    def start(self, number: int, fds: Sequence[int]) -> None:
        try:
            how, pid = self._fork(fds) if self.can_fork else self._spawn(fds)
        finally:
            for fd in fds:
                os.close(fd)
        self.workers.add(pid)
        self.control.send({"started": number, "pid": pid, "how": how})

    def _fork(self, fds: Sequence[int]) -> tuple[str, int]:
        try:
            with warnings.catch_warnings():
                # JAX warns of forks, since a program that has used it has threads. This one has none.
                warnings.simplefilter("ignore", RuntimeWarning)
                pid = os.fork()
        except OSError:  # too many processes, or no memory to copy the page tables
            self.can_fork = False
            return self._spawn(fds)
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            worker.begin(*fds)
        return "fork", pid

    def _spawn(self, fds: Sequence[int]) -> tuple[str, int]:
        connection, output = fds
        child = subprocess.Popen(
            [*sys.orig_argv[: sys.orig_argv.index("-c")], "-c", worker.BOOT, sys.argv[1], str(connection), str(output)],
            pass_fds=fds,
            stdin=subprocess.DEVNULL,
        )
        self.spawned[child.pid] = child
        return "spawn", child.pid

    def ask(self, pid: int) -> None:
        if pid in self.workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGUSR1)

    def kill(self, pid: int) -> None:
        """Ends a worker, what descends from it, and what others have left behind."""
        until = monotonic() + PATIENCE_S
        # Again and again: what a killed process has started becomes ours, and can be seen, only once that is gone.
        while victims := self._victims(pid):
            process_tree.kill(victims)
            self.reap()
            if monotonic() > until or not self._victims(pid):
                break
            sleep(0.0003)
        self.control.send({"killed": pid})

    def _victims(self, pid: int) -> list[int]:
        roots = [child for child in children(os.getpid()) if child == pid or child not in self.workers]
        return [each for root in roots for each in (*descendants(root), root)]

    def reap(self) -> None:
        """Takes note of all children that have ended, workers and adopted ones."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if (child := self.spawned.pop(pid, None)) is not None:
                child.returncode = os.waitstatus_to_exitcode(status)  # it must not wait for what is gone
            if pid in self.workers:
                self.workers.discard(pid)
                with contextlib.suppress(Closed):
                    self.control.send({"ended": pid, "status": os.waitstatus_to_exitcode(status)})

    def end_everything(self) -> None:
        self.workers.clear()
        with contextlib.suppress(Closed):
            self.kill(0)


def _handle_of(pid: int) -> int | None:
    """Becomes readable when that process has ended."""
    try:
        return os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    except OSError:  # an old kernel, or gone already: then the connection has an end
        return None


BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from benchax.workers import zygote; zygote.main()"
"""With `python -c`, so that it imports from where its parent does, and not from the working directory."""
