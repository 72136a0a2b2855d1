"""`compiled_grid`: are its limits kept, are its times right, and what does it cost beside a loop in Python?

    limits      one call of six functions, endless ones among them: when each was stopped, in many calls
    truth       functions of known duration, by the grid and by a Python loop, as ratios to the truth
    benchmark   the same functions and data, benchmarked by a Python loop that times each call, and by one compiled call
                per size: total time, and what a repetition costs beyond the function itself

Compiling is told apart from running ("first time"). On a busy machine read the ratios; both ways take turns.

    python benchmarks/compiled_grid.py [--quick]      about 20 s
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from report import header, load, note, table

from benchax.clock import handlers
from benchax.clock.handlers import tier
from benchax.compiled_grids.compiled import CompiledGrid, compiled_grid
from benchax.units import seconds

LIMIT_S = 0.02
TRUTHS_US = (1, 10, 100, 1000, 10_000)
PYTHON, GRID = "Python loop", "compiled grid"
SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)


def spin(us: float) -> Callable[[Any], Any]:
    return lambda x: handlers.spin(tier(), x, round(us * 1000))


def forever(x: Any) -> Any:
    return lax.while_loop(lambda c: True, lambda c: jnp.sin(c) + 1, x)


def endless_scan(x: Any) -> Any:
    return lax.scan(lambda c, _: (jnp.cos(c), None), x, None, length=10**9)[0]


def loop_in_forever(x: Any) -> Any:
    return lax.while_loop(lambda c: True, lambda c: lax.fori_loop(0, 1000, lambda i, d: jnp.sin(d), c), x)


def f1(x: Any) -> Any:
    return x**2 - 1


def f2(x: Any) -> Any:
    return x / 2


def f3(x: Any) -> Any:
    return x**3 * jnp.sin(x)


def limits(calls: int) -> None:
    functions = {
        "1 µs": spin(1),
        "endless while_loop": forever,
        "scan of 10⁹ steps": endless_scan,
        "fori_loop in an endless while_loop": loop_in_forever,
        "3 ms": spin(3000),
        "another shape": jnp.sum,
        "x³ sin x": f3,
    }
    x = jnp.linspace(0.0, 1.0, 64)
    h = compiled_grid(functions, repeats=1000, timeout_s=LIMIT_S)
    begun = perf_counter()
    jax.block_until_ready(h(x))
    first_s = perf_counter() - begun
    results = [h(x) for _ in range(calls)]
    elapsed = np.array([r.elapsed_s for r in results])
    rows = [
        [name, results[0].status_names[k], str(int(results[0].count[k])), *stopped_at(elapsed[:, k])]
        for k, name in enumerate(functions)
    ]
    print(f"limits: one call of {len(functions)} functions, {seconds(LIMIT_S)} for each; {calls} calls")
    table(["function", "status", "repetitions", "ended at, median", "least", "most"], rows)
    ran_s = float(np.median([r.total_s for r in results]))
    print(f"trace and compile {seconds(first_s - ran_s)}, a call {seconds(ran_s)}; a result shows itself as:\n")
    print(results[0], end="\n\n")


def stopped_at(elapsed_s: np.ndarray) -> list[str]:
    if not elapsed_s.any():
        return ["not run"] * 3
    return [seconds(float(s), 4) for s in (np.median(elapsed_s), elapsed_s.min(), elapsed_s.max())]


def truth(rounds: int) -> None:
    x = jnp.float32(1)
    grids = {us: compiled_grid([spin(us)], repeats=repetitions(us)) for us in TRUTHS_US}
    calls = {us: jax.jit(spin(us)) for us in TRUTHS_US}
    found: dict[str, dict[int, list[float]]] = {name: {us: [] for us in TRUTHS_US} for name in ("raw", "net", "wall")}
    for turn in range(rounds + 1):  # the first one compiles
        for us in TRUTHS_US:
            r, wall_s = grids[us](x), median(each_call_s(calls[us], x, repetitions(us)))
            if turn:
                found["raw"][us].append(float(np.ma.median(r.seconds(raw=True))) * 1e6 / us)
                found["net"][us].append(float(np.ma.median(r.seconds())) * 1e6 / us)
                found["wall"][us].append(wall_s * 1e6 / us)
    print(f"truth: ratio to a known duration; median of {rounds} rounds [range], each the median of its repetitions")
    names = {"net": "compiled grid", "raw": "compiled grid, stamps not subtracted", "wall": "Python loop"}
    rows = [[label, *[ratio_cell(found[name][us]) for us in TRUTHS_US]] for name, label in names.items()]
    table(["", *[f"{us} µs" for us in TRUTHS_US]], rows)


def repetitions(us: float) -> int:
    return max(10, min(1000, round(50_000 / us)))


def each_call_s(f: Callable[..., Any], x: Any, calls: int) -> list[float]:
    times = []
    for _ in range(calls):
        begun = perf_counter_ns()
        f(x).block_until_ready()
        times.append((perf_counter_ns() - begun) / 1e9)
    return times


def ratio_cell(ratios: list[float]) -> str:
    return f"{median(ratios):.3f} [{min(ratios):.2f}–{max(ratios):.2f}]"


def benchmark_benchmark(repeats: int, rounds: int) -> None:
    """The seed's question: two ways of benchmarking f1, f2, f3 over its sizes. Same functions, data, repetitions."""
    functions = [jax.jit(f) for f in (f1, f2, f3)]
    data = {n: jax.random.normal(jax.random.key(n), (n,)) for n in SIZES}
    h = compiled_grid(functions, repeats=repeats)
    ways = {PYTHON: lambda: by_python(functions, data, repeats), GRID: lambda: by_grid(h, data)}
    first = {name: timed(way)[0] for name, way in ways.items()}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for turn in range(rounds):
        for name in sorted(ways, reverse=bool(turn % 2)):
            found[name].append(timed(ways[name]))
        note(f"round {turn + 1} of {rounds}, {load()}")
    report(found, first, len(functions) * len(SIZES) * repeats, repeats)


def report(found: dict[str, list[tuple[float, float]]], first: dict[str, float], count: int, repeats: int) -> None:
    own_s = [claimed for _, claimed in found[GRID]]
    rows = []
    for name, turns in found.items():
        took_s, claimed_s = (median(values) for values in zip(*turns, strict=True))
        beyond_s = median(took / count - own for (took, _), own in zip(turns, own_s, strict=True))
        rows.append([name, *map(seconds, (took_s, took_s / count, claimed_s, beyond_s, first[name]))])
    print(
        f"benchmark_benchmark: 3 functions × {len(SIZES)} sizes × {repeats} repetitions, median of {len(own_s)} rounds"
    )
    columns = ["", "took", "per repetition", "says a repetition takes", "beyond the grid's figure", "first time"]
    table(columns, rows)
    pairs = list(zip(found[PYTHON], found[GRID], own_s, strict=True))
    total = [python[0] / grid[0] for python, grid, _ in pairs]
    beyond = [(python[0] / count - own) / (grid[0] / count - own) for python, grid, own in pairs]
    print(f"{PYTHON} ÷ {GRID}: total time {ratio_cell(total)}, time beyond the functions {ratio_cell(beyond)}")
    gain_s = median((python[0] - grid[0]) / count for python, grid, _ in pairs)
    if gain_s <= 0:
        print("a repetition of the compiled grid holds several runs of short functions, and takes longer for it\n")
        return
    repetitions = (first[GRID] - first[PYTHON]) / gain_s / len(SIZES) / 3
    print(f"compiling pays from {repetitions:,.0f} repetitions of each on\n")


def timed(way: Callable[[], float]) -> tuple[float, float]:
    """(seconds that it took, seconds that it says a repetition takes)."""
    begun = perf_counter()
    claimed_s = way()
    return perf_counter() - begun, claimed_s


def by_python(functions: list[Any], data: dict[int, Any], repeats: int) -> float:
    return float(np.mean([median(each_call_s(f, x, repeats)) for x in data.values() for f in functions]))


def by_grid(h: CompiledGrid, data: dict[int, Any]) -> float:
    return float(np.mean([np.ma.median(h(x).seconds(), axis=1) for x in data.values()]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer calls and rounds")
    quick = parser.parse_args().quick
    header(f"compiled_grid: limits, times and cost; clock {tier().name}")
    limits(5 if quick else 30)
    truth(3 if quick else 15)
    benchmark_benchmark(200 if quick else 1000, 3 if quick else 9)
    print(load())


if __name__ == "__main__":
    main()
