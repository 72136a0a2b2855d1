"""One measurement at a time among the workers of pytest-xdist: two at once would measure each other.

A lock on a file, which the system takes back when a process dies. Other tests still run beside a measurement.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fcntl import LOCK_EX, LOCK_UN, flock
from pathlib import Path

LOCK = ".ptjb-lock"


@contextmanager
def hold_lock(folder: Path) -> Iterator[None]:
    """Waits until no other process is inside, for as long as that takes."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as file:
        flock(file, LOCK_EX)
        try:
            yield
        finally:
            # Said aloud: a process started in the meantime has the file open too, and closing it is not enough.
            flock(file, LOCK_UN)
