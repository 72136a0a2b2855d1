"""What the scripts of this folder print alike: a header that says where and when, and plain tables."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

import psutil

from benchax.environment import capture, installed


def header(title: str, packages: Sequence[str] = (), peers: str = "") -> None:
    """Title, date, machine, versions, load.

    Args:
        packages: further packages of this interpreter whose versions belong to the figures.
        peers: a line about the other tools.
    """
    here = capture()
    versions = {"Python": here.python, "jax": here.jax, "jaxlib": here.jaxlib, "benchax": here.benchax}
    versions |= {name: installed(name) for name in packages}
    print(title)
    print(f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC   {here.processor}, {here.cores} cores   backend {here.backend}")
    print("   ".join(f"{name} {version}" for name, version in versions.items() if version))
    if peers:
        print(peers)
    print(load() + "\n")


def load() -> str:
    """The load averages: on a machine with other work only ratios taken side by side mean anything."""
    return "load " + " ".join(f"{average:.1f}" for average in psutil.getloadavg()) + f" on {psutil.cpu_count()} cores"


@contextmanager
def busy_neighbour() -> Iterator[None]:
    """Another process that computes in bursts of 5 to 50 ms, half of the time: what a shared machine is like."""
    program = (
        "import random, time\n"
        "from benchax.subprocesses import die_with_parent\n"
        "die_with_parent()\n"  # a benchmark that is killed leaves nobody who disturbs the next one
        "while True:\n"
        "    end = time.perf_counter() + random.uniform(0.005, 0.05)\n"
        "    while time.perf_counter() < end: sum(range(1000))\n"
        "    time.sleep(random.uniform(0.005, 0.05))\n"
    )
    neighbours = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(psutil.cpu_count() or 1)]
    try:
        yield
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Left-aligned first column, the others right-aligned."""
    cells = [list(columns), *[list(row) for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    for row in cells:
        print(
            "  ".join(
                cell.rjust(width) if i else cell.ljust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
        )
    print()


def note(text: str) -> None:
    """For progress: the tables alone go to standard output."""
    print(text, file=sys.stderr, flush=True)
