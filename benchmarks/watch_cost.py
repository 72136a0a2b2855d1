"""What `benchax.watch()` costs a warm call: nothing that can be seen is claimed.

A small jitted function is called 1000 times with and without a watch around the calls, in an order drawn anew for each
pair, 100 pairs: 100 000 calls of each. Entering and leaving the watch is outside of the interval. Compared by the
median of the paired ratios, with a distribution-free interval for it (order statistics with binomial ranks).

    python benchmarks/watch_cost.py [--quick]      a few seconds
"""

from __future__ import annotations

import argparse
import contextlib
import random
from collections.abc import Callable
from statistics import median
from time import perf_counter_ns

import jax
import numpy as np
from report import header, load, table

import benchax
from benchax.stats.intervals import median_interval

CALLS = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="20 pairs")
    pairs = 20 if parser.parse_args().quick else 100
    header("watch cost: a warm call inside `benchax.watch()` beside one outside")
    step = jax.jit(lambda x: x + 1)
    x = jax.block_until_ready(step(np.zeros(4, np.float32)))
    call_ns(step, x)
    report([pair(step, x) for _ in range(pairs)])
    print(load())


def pair(step: Callable[[jax.Array], jax.Array], x: jax.Array) -> tuple[float, float]:
    """(without, with) in ns per call, in random order."""
    taken = {}
    for is_watched in random.sample([False, True], 2):
        with benchax.watch() if is_watched else contextlib.nullcontext(None) as seen:
            taken[is_watched] = call_ns(step, x)
        assert seen is None or not seen.compiles, "the calls were not warm"
    return taken[False], taken[True]


def call_ns(step: Callable[[jax.Array], jax.Array], x: jax.Array) -> float:
    """Per call, of calls one after another on their own outputs, with one wait at the end."""
    begun = perf_counter_ns()
    for _ in range(CALLS):
        x = step(x)
    x.block_until_ready()
    return (perf_counter_ns() - begun) / CALLS


def report(found: list[tuple[float, float]]) -> None:
    without, watched = (median(side) for side in zip(*found, strict=True))
    ratios = [after / before for before, after in found]
    interval = median_interval(ratios)
    low, high = interval if interval else (min(ratios), max(ratios))
    rows = [("without", f"{without:.0f}"), ("inside watch()", f"{watched:.0f}")]
    print(f"{len(found)} pairs of {CALLS} calls; ns per call, medians")
    table(("", "ns"), rows)
    print(f"ratio {median(ratios):.3f}, 95 % interval {low:.3f} – {high:.3f}   claimed: 1 lies inside, or within 1 %")


if __name__ == "__main__":
    main()
