"""Waits for processes of other programs to end."""

from __future__ import annotations

import time

import psutil


def wait_until_gone(pids: set[int]) -> None:
    until = time.monotonic() + 30
    while left := [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]:
        assert time.monotonic() < until, left
        time.sleep(0.05)
