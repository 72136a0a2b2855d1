"""How far apart processes of this host begin that start together, and whether a rank that is late is named.

    python benchmarks/start_skew.py          half a minute; only of a quiet machine does it say what is possible

First two processes that do nothing but start; then `benchax run --nprocs 2`: a sum that is exchanged, and the same with
5 ms of sleep in rank 1.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from report import header, load, table

from benchax.units import percent, seconds
from benchax.workers.rank import StartLine

ROOT = Path(__file__).parents[1]
STARTS, PATIENCE_S, SMALL_S = 1000, 30.0, 50e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--be", nargs=2, metavar=("RANK", "WHERE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.be:
        be(int(given.be[0]), given.be[1])
        return
    header("Processes that start together", [])
    rows = [of(f"{STARTS} starts", bare_skews())]
    ranks = [(name, *run_ranks(name)) for name in ("sums", "late")]
    table(["", "median", "9 of 10", "the most", "up to 50 µs"], rows + [of(n, s) for n, s, _ in ranks])
    for name, _, remarks in ranks:
        print(f"{name}: {'; '.join(remarks) or 'nobody is named'}")
    print(load())


def of(name: str, skews_s: Sequence[float]) -> tuple[str, ...]:
    low = sorted(skews_s)
    share = sum(skew <= SMALL_S for skew in low) / len(low)
    return name, *map(seconds, (statistics.median(low), low[len(low) * 9 // 10], low[-1])), percent(share)


def bare_skews() -> list[float]:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        where = f"127.0.0.1:{found.getsockname()[1]}"
    command = [sys.executable, __file__, "--be"]
    both = [subprocess.Popen([*command, str(r), where], stdout=subprocess.PIPE, text=True) for r in (0, 1)]
    times = [json.loads(each.communicate()[0]) for each in both]
    return [abs(a - b) / 1e9 for a, b in zip(*times, strict=True)]


def be(rank: int, where: str) -> None:
    line = StartLine(where, rank, 2, PATIENCE_S, clock=1)
    print(json.dumps([line.start() for _ in range(STARTS)]))


def run_ranks(name: str) -> tuple[list[float], list[str]]:
    """(skew of each start, remarks on late ranks)"""
    words = [f"{ROOT / 'tests' / 'ranks_by_hand.py'}:{name}", "f32[1024@data]", "--mesh", "data=4", "--nprocs", "2"]
    done = subprocess.run(
        [sys.executable, "-m", "benchax.cli.main", "run", *words, "--max-time", "2", "--store", "off", "--json"],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    row = json.loads(done.stdout)
    remarks = [each["message"] for each in row.get("remarks", ()) if each["code"] == "late-rank"]
    return row["ranks"]["barrier_skew_s"], remarks


if __name__ == "__main__":
    main()
