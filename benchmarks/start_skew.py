"""How far apart processes of this host begin that start together, and whether a rank that is late is named.

    python benchmarks/start_skew.py          half a minute; only of a quiet machine does it say what is possible

First two processes that do nothing but start, by the page of memory of one host and by messages as between hosts; then
`benchax run --nprocs 2`: a sum that is exchanged, and the same with 5 ms of sleep in rank 1.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from report import header, load, table

from benchax.units import percent, seconds
from benchax.workers.rank import RemoteStartLine, StartLine, make_file

ROOT = Path(__file__).parents[1]
STARTS, PATIENCE_S, SMALL_S = 1000, 30.0, 50e-6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--be", nargs=3, metavar=("RANK", "KIND", "WHERE"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.be:
        be(int(given.be[0]), given.be[1], given.be[2])
        return
    header("Processes that start together", [])
    rows = [of(f"{STARTS} starts, {kind}", bare_skews(kind)) for kind in ("memory", "messages")]
    ranks = [(name, *run_ranks(name)) for name in ("sums", "late")]
    table(["", "median", "9 of 10", "the most", "up to 50 µs"], rows + [of(n, s) for n, s, _ in ranks])
    for name, _, remarks in ranks:
        print(f"{name}: {'; '.join(remarks) or 'nobody is named'}")
    print(load())


def of(name: str, skews_s: Sequence[float]) -> tuple[str, ...]:
    low = sorted(skews_s)
    share = sum(skew <= SMALL_S for skew in low) / len(low)
    return name, *map(seconds, (statistics.median(low), low[len(low) * 9 // 10], low[-1])), percent(share)


def bare_skews(kind: str) -> list[float]:
    with tempfile.TemporaryDirectory() as folder, socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        where = make_file(folder, 2) if kind == "memory" else f"127.0.0.1:{found.getsockname()[1]}"
        found.close()
        command = [sys.executable, __file__, "--be"]
        both = [subprocess.Popen([*command, str(r), kind, where], stdout=subprocess.PIPE, text=True) for r in (0, 1)]
        times = [json.loads(each.communicate()[0]) for each in both]
    return [abs(a - b) / 1e9 for a, b in zip(*times, strict=True)]


def be(rank: int, kind: str, where: str) -> None:
    line = (StartLine if kind == "memory" else RemoteStartLine)(where, rank, 2, PATIENCE_S)
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
