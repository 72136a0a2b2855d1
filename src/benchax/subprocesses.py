"""The processes that a process has started: finds, adopts and ends them by means of the operating system.

Linux lists a process's children at once and gives orphans to a chosen ancestor (`PR_SET_CHILD_SUBREAPER`). So a process
that daemonised itself is found as well. Elsewhere psutil looks through all processes. It does not find a process that
left its parent before the search.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Iterable
from pathlib import Path

import psutil

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def children(pid: int) -> list[int]:
    """Also those that have ended and were not waited for."""
    if pid == os.getpid() and _is_childless():
        return []
    # The kernel's own list takes 0.1 ms. psutil reads /proc of all processes, which takes 1 ms or more.
    texts = _lists_of_threads(f"/proc/{pid}/task")
    if texts:
        return [int(child) for text in texts for child in text.split()]
    try:
        return [child.pid for child in psutil.Process(pid).children()]
    except psutil.Error:
        return []


def _is_childless() -> bool:
    """Asks the kernel, which takes 2 µs; the lists of 15 threads take 200. False where it can't be asked."""
    try:
        # WNOWAIT leaves a child that has ended to whoever waits for it.
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return True
    except (AttributeError, OSError):  # Windows, and macOS before Python 3.13, have no such call
        return False
    return False


def _lists_of_threads(folder: str) -> list[str]:
    """Empty if the process has ended, or the kernel keeps no such lists."""
    texts: list[str] = []
    with contextlib.suppress(OSError):
        # Don't use pathlib, which takes five times as long, in each cell of a grid.
        for thread in os.listdir(folder):  # noqa: PTH208
            with contextlib.suppress(OSError), open(f"{folder}/{thread}/children", encoding="ascii") as file:  # noqa: PTH123
                texts.append(file.read())
    return texts


def descendants(pid: int) -> list[int]:
    """Children, their children, and so on."""
    found = children(pid)
    for child in found:  # grows while it is walked
        found += children(child)
    return found


def adopt_orphans() -> None:
    """From now on this process becomes the parent of descendants that lose theirs, on Linux."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """SIGKILL as soon as the thread that made this process ends, on Linux."""
    parent = os.getppid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it had ended before we asked to end with it
        os._exit(0)


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, ctypes.c_ulong(value), 0, 0, 0)


def kill(pids: Iterable[int]) -> None:
    """Stops all before it kills the first, so that none of them makes a new one in between."""
    listed = list(pids)
    for which in (signal.SIGSTOP, signal.SIGKILL):
        for pid in listed:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, which)


def kill_tree(pid: int) -> None:
    """Ends `pid` and what descends from it, as far as it can be found from outside."""
    for _ in range(100):  # and not for ever: the kernel may hold on to one that was killed
        alive: list[int] = []
        for each in [*descendants(pid), pid]:
            with contextlib.suppress(psutil.Error):
                if psutil.Process(each).status() != psutil.STATUS_ZOMBIE:
                    alive.append(each)
        if not alive:
            return
        kill(alive)


def running_threads() -> set[int]:
    """Threads of this process, but the calling one, that are computing right now; empty if it is not told."""
    found: set[int] = set()
    for path in Path("/proc/self/task").glob("*/stat"):
        with contextlib.suppress(OSError):  # it ended meanwhile
            is_running = path.read_text().rpartition(")")[2].split()[0] == "R"
            found |= {int(path.parent.name)} if is_running else set()
    return found - {threading.get_native_id()}


def oom_kills() -> int:
    """How often the kernel has ended a process for want of memory since the machine started; always 0 if not told."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0
