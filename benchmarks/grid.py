"""What a grid costs beyond its functions: 1,000 small cells, beside a plain loop in this process.

    python benchmarks/grid.py [--quick] [--neighbour]      1,000 cells, about a minute; --quick: 100 cells

Each cell compiles a function of its own (no cache serves it) and runs one trial. Printed are the seconds per cell,
split into what JAX takes and what the grid adds: sending, making inputs, fetching outputs, comparing, storing durably.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from statistics import median
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from report import busy_neighbour, header, load, note, table

import benchax
from benchax.grids.cell import MOST_CALLS, SPAN_S
from benchax.units import seconds


def functions(count: int) -> list[Callable[..., Any]]:
    def polynomial(degree: int) -> Callable[..., Any]:
        def f(x: Any) -> Any:
            return x**degree + jnp.sin(x)

        f.__name__ = f"f{degree}"
        return f

    return [polynomial(degree) for degree in range(2, 2 + count)]


def in_process(given: list[Callable[..., Any]], data: list[str]) -> list[float]:
    """The floor: seconds of each cell of a plain loop that isolates, checks and stores nothing."""
    spent = []
    for i, spec in enumerate(data):
        for f in given:
            begun = perf_counter()
            x = jax.device_put(np.random.default_rng(i).standard_normal(int(spec[4:-1]), np.float32))
            jitted = jax.jit(lambda x, f=f: f(x))
            jitted.lower(x).compile()
            jax.block_until_ready(jitted(x))
            used = 0.0
            readings = []
            while used < SPAN_S and len(readings) < MOST_CALLS:
                start = perf_counter()
                jax.block_until_ready(jitted(x))
                readings.append(perf_counter() - start)
                used += readings[-1]
            np.asarray(jitted(x))
            spent.append(perf_counter() - begun)
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="100 cells")
    parser.add_argument("--neighbour", action="store_true", help="beside processes that compute in bursts")
    given = parser.parse_args()
    fs = functions(10)
    sizes = [f"f32[{8 + n}]" for n in range(10 if given.quick else 100)]
    with busy_neighbour() if given.neighbour else nullcontext():
        beside = ", beside a busy neighbour" if given.neighbour else ""
        header(f"A grid of {len(fs) * len(sizes)} small cells" + beside, ["numpy"])
        measure(fs, sizes)
        print(load())


def measure(fs: list[Callable[..., Any]], sizes: list[str]) -> None:
    benchax.grid(fs[:1], sizes[:1], store=False, progress=False)  # the workers are there
    note("in this process")
    floor = in_process(fs, sizes)
    for where in ("off", "durable"):
        note(f"the grid, store {where}")
        with tempfile.TemporaryDirectory() as folder:
            g = benchax.grid(fs, sizes, store=False if where == "off" else folder, progress=False)
        show(g, floor, where)


def show(g: benchax.GridResult, floor: list[float], where: str) -> None:
    jax_s = [_in_jax(cell) for cell in g.cells]
    spent = [cell.spent_s for cell in g.cells]
    beyond = [a - b for a, b in zip(spent, jax_s, strict=True)]
    rows = [
        ("whole cell", *_texts(spent)),
        ("  trace, lower, compile", *_texts([c.stages.build_s or 0.0 for c in g.cells])),
        ("  first run and trials", *_texts([_in_jax(c) - (c.stages.build_s or 0.0) for c in g.cells])),
        ("  beyond compile and run", *_texts(beyond)),
        ("plain loop in this process", *_texts(floor)),
    ]
    table([f"per cell, store {where}", "median", "mean", "p95"], rows)
    ratio = sum(spent) / sum(floor)
    print(f"{len(spent)} cells in {seconds(g.elapsed_s)}, {seconds(g.elapsed_s / len(spent))} a cell; ", end="")
    print(f"{ratio:.2f} times the plain loop; ok: {sum(c.status == 'ok' for c in g.cells)}\n")


def _in_jax(cell: Any) -> float:
    return (cell.stages.build_s or 0.0) + (cell.stages.first_run_s or 0.0) + sum(map(sum, cell.trials_s))


def _texts(values: list[float]) -> list[str]:
    return [seconds(v) for v in (median(values), sum(values) / len(values), sorted(values)[int(0.95 * len(values))])]


if __name__ == "__main__":
    main()
