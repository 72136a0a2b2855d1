"""Waits for processes of other programs to end."""

from __future__ import annotations

import time

import psutil


def wait_until_gone(pids: set[int]) -> None:
    until = time.monotonic() + 30
    while left := [pid for pid in pids if _is_alive(pid)]:
        assert time.monotonic() < until, left
        time.sleep(0.05)


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # it may end between two questions
        return False
