"""Does a later run confirm the interval? 30 default runs of ten functions from 1 µs to 20 ms, one after the other.

Each run is a new program that does what `benchax run` does by default, with one store for all of them, so that later
runs know the earlier ones. Every interval is compared with what each later run reads: `inside` is the share of pairs of
runs in which the later median lies in the earlier interval. `width` is high over low, less one. `processes` are those
that runs 1 to 8 took on average, and later ones.

The goal: at least 90 % inside, quiet and next to a busy neighbor; on a quiet machine a median width of at most 15 % for
in_graph and 35 % for wall. docs/explanations/trust.md says how far it is.

    python benchmarks/coverage.py [--quick] [--neighbour]      30 runs; 8 minutes
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import combinations
from pathlib import Path
from statistics import fmean, median
from typing import Any

import jax
import jax.numpy as jnp
from kernels import TURNS, data, kernel
from report import busy_neighbour, header, load, note, table

from benchax import api
from benchax.case import Case, make_case

TIMERS = ("in_graph", "wall")
INSIDE, WIDEST = 0.90, {"in_graph": 0.15, "wall": 0.35}
EARLY = 8
Run = dict[str, dict[str, Any]]
"""Function → timer → {"median", "low", "high", "processes": the median of each}."""


def cases() -> Iterator[Case]:
    for name in ("k2", "k20", "k200", "k2m", "kal", "k20m"):
        yield make_case(kernel(name, TURNS[name]["A/A"]), data(name), name=name)
    others: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
        "matmul-256": (jnp.matmul, ("f32[256,256]", "f32[256,256]")),
        "sort-100k": (jnp.sort, ("f32[100000]",)),
        "softmax-512": (jax.nn.softmax, ("f32[512,512]",)),
        "cumsum-1000": (jnp.cumsum, ("f32[1000]",)),
    }
    for name, (fn, inputs) in others.items():
        yield make_case(fn, inputs, name=name)


def take(store: str) -> Run:
    """What one default run says."""
    found: Run = {}
    for row in api.run(cases(), call={"store": store}, defaults={"processes": "auto"}):
        if row.failure:
            raise SystemExit(f"{row.case.label} failed: {row.failure.message}")
        found[row.case.label] = {
            timer: {
                "median": s.median_s,
                "low": s.low_s,
                "high": s.high_s,
                "processes": [each.summary.median_s for each in row.series_of(timer)],
            }
            for timer in TIMERS
            if (s := row.find_summary(timer))
        }
    return found


def collect(count: int) -> list[Run]:
    found = []
    with tempfile.TemporaryDirectory(prefix="benchax-coverage-") as folder:
        # The pace of the machine is learned by these runs alone.
        environ = os.environ | {"XDG_CACHE_HOME": folder}
        for i in range(count):
            note(f"run {i + 1} of {count}")
            command = [sys.executable, __file__, "--take", folder]
            done = subprocess.run(
                command, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=environ
            )
            found.append(json.loads(done.stdout.splitlines()[-1]))
    return found


def report(runs: list[Run]) -> None:
    names = list(runs[0])
    for timer in TIMERS:
        rows, inside, widths = [], [], []
        for name in names:
            said = [run[name][timer] for run in runs if timer in run[name]]
            if len(said) < 2:
                continue
            held = [a["low"] <= b["median"] <= a["high"] for a, b in combinations(said, 2) if a["low"]]
            width = [s["high"] / s["low"] - 1 for s in said if s["low"]]
            early, late = (
                f"{fmean(len(s['processes']) for s in part):.1f}" if part else "–"
                for part in (said[:EARLY], said[EARLY:])
            )
            times = f"{1e6 * min(s['median'] for s in said):.4g} – {1e6 * max(s['median'] for s in said):.4g}"
            rows.append((name, times, _share(held), _percent(median(width)), early, late, str(len(said) - len(width))))
            inside += held
            widths += width
        rows.append(("all", "", _share(inside), _percent(median(widths)), "", "", ""))
        table((timer, "medians, µs", "inside", "width", "processes 1–8", "later", "no interval"), rows)
    goals = " and ".join(f"{100 * width:.0f} % for {timer}" for timer, width in WIDEST.items())
    print(f"goal: {100 * INSIDE:.0f} % inside; on a quiet machine a median width of at most {goals}")


def _share(held: list[bool]) -> str:
    return _percent(fmean(held)) if held else "–"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10 runs")
    parser.add_argument("--neighbour", action="store_true", help="next to a process that computes in bursts per core")
    parser.add_argument("--raw", type=Path, help="write everything that was read to this file, as JSON")
    parser.add_argument("--take", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.take:
        print(json.dumps(take(given.take)))
        return
    header("coverage: does a later run confirm the interval?" + " next to a busy neighbor" * given.neighbour)
    with busy_neighbour() if given.neighbour else nullcontext():
        runs = collect(10 if given.quick else 30)
    if given.raw:
        given.raw.write_text(json.dumps(runs))
    report(runs)
    print(load())


if __name__ == "__main__":
    main()
