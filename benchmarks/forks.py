"""Are processes that are forks of one another as independent as processes of a new Python? For `paired_runs.session`.

Pairs of unchanged code (`kernels.py`) in forks of a process that has imported JAX and started no backend, and in new
processes, in turns. What counts is how far the ratio of one process lies from 1 (sd), and whether all forks of one
parent lean to one side: the sd between parents, over what the forks of each explain, is 1 where they do not.

    python benchmarks/forks.py [--parents 4] [--forks 6] [--kernels k2,k20,k200,kal]                        3 minutes
"""

from __future__ import annotations

import argparse
import random
from collections import defaultdict
from math import sqrt
from statistics import fmean, median, stdev
from time import perf_counter

import numpy as np
from kernels import TURNS, data, kernel
from report import header, load, note, table

from benchax.case import Case
from benchax.measuring.paired import PairedRequest, Side, take_blocks
from benchax.model import CaseId, Failure
from benchax.workers.pool import Pool

KINDS = ("fork", "new process")
Ratios = dict[tuple[str, str], list[list[float]]]
"""By kind and kernel: [parent][process], logarithms."""


def side(label: str, name: str) -> Side:
    return Side(label, Case(kernel(name, TURNS[name]["A/A"]), lambda: (data(name), {}), CaseId(name)))


def one_process(pool: Pool, kernels: list[str], order: random.Random) -> dict[str, float]:
    """The logarithm of the ratio of each kernel."""
    found: dict[str, float] = {}
    for name in order.sample(kernels, len(kernels)):
        sides = (side("a", name), side("b", name))
        answer = pool.call(take_blocks, PairedRequest(sides, order_seed=order.randrange(2**31)))
        assert not isinstance(answer, Failure), answer
        ns = answer.wall_ns
        assert ns is not None
        found[name] = float(np.median(np.log(ns[:, :, 1] / ns[:, :, 0])))
    return found


def measure(parents: int, forks: int, kernels: list[str]) -> tuple[Ratios, dict[str, list[float]]]:
    order, ratios, spent = random.Random(1), defaultdict[tuple[str, str], list[list[float]]](list), defaultdict(list)
    for parent in range(parents):
        note(f"parent {parent + 1} of {parents}   {load()}")
        with Pool() as shared:
            rows: dict[str, list[dict[str, float]]] = {kind: [] for kind in KINDS}
            for kind in (kind for _ in range(forks) for kind in order.sample(KINDS, 2)):
                begun = perf_counter()
                if kind == "fork":
                    rows[kind].append(one_process(shared, kernels, order))
                    shared.renew()
                else:
                    with Pool() as alone:
                        rows[kind].append(one_process(alone, kernels, order))
                spent[kind].append(perf_counter() - begun)
        for kind in KINDS:
            for name in kernels:
                ratios[kind, name].append([row[name] for row in rows[kind]])
    return ratios, spent


def lean(groups: list[list[float]]) -> float:
    """The sd between the means of groups, over the one that the scatter inside them explains; about 1 by chance."""
    inside = sqrt(fmean([stdev(group) ** 2 / len(group) for group in groups]))
    return stdev([fmean(group) for group in groups]) / inside


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--parents", type=int, default=4, help="(4)")
    parser.add_argument("--forks", type=int, default=6, help="of each, and as many new processes beside them (6)")
    parser.add_argument("--kernels", default="k2,k20,k200,kal", help="(k2,k20,k200,kal)")
    given = parser.parse_args()
    kernels = given.kernels.split(",")
    header("ratios of unchanged code in forks of one parent and in new processes")
    ratios, spent = measure(given.parents, given.forks, kernels)
    rows = []
    for name in kernels:
        cells = [
            cell
            for kind in KINDS
            for cell in (
                f"{100 * stdev([r for group in ratios[kind, name] for r in group]):.2f} %",
                f"{100 * fmean([r for group in ratios[kind, name] for r in group]):+.2f} %",
                f"{lean(ratios[kind, name]):.1f}",
            )
        ]
        rows.append([name, *cells])
    table(["kernel", *(f"{kind} {what}" for kind in KINDS for what in ("sd", "mean", "lean"))], rows)
    table(["", "seconds a process"], [[kind, f"{median(spent[kind]):.2f}"] for kind in KINDS])
    print(load())


if __name__ == "__main__":
    main()
