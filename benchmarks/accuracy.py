"""Time per call of functions of true 1, 10, 100 and 1000 µs, by benchax and by other tools, taken in turns.

The functions wait in C for a known time (`spin.py`), so the truth is not an estimate. Two claims, and how to read them:

    in_graph ratio to the truth near 1: a clock inside the program. XLA's call of the function (0.1 µs) shows at 1 µs.
    loop     the same question by a slope. A trip of XLA's loop costs 0.1 to 0.4 µs, and a busy machine spoils it.
    wall     ratio to (floor + truth) near 1, the floor being a call of the same program with a wait of 0 µs, measured
             beside it. Its plain ratio at 1 and 10 µs is what dispatch costs: no tool that times calls can have less.

Others are shown as ratios to the truth. Each figure is the median of the rounds, the range in brackets; the order of
the tools changes from round to round. On a busy machine the ranges tell how far to believe the medians. `width` is what
benchax itself claims: half the 95 % interval of its median, as a share.

    python benchmarks/accuracy.py [--quick] [--neighbour] [--python PATH]      5 rounds, about 5 minutes
"""

from __future__ import annotations

import argparse
import json
import tempfile
import timeit
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
import peers
from report import busy_neighbour, header, load, note, table
from spin import NoSpin, check, spin

import benchax

TRUTHS_US = (1, 10, 100, 1000)
Readings = dict[str, dict[int, float]]
"""Tool and statistic → true µs → measured µs."""

TIMERS = ("in_graph", "loop", "wall")
OURS = {timer: f"benchax {timer}" for timer in TIMERS}
WIDTHS = {timer: f"width {timer}" for timer in TIMERS}
FLOOR = "floor"

PYTEST_BENCHMARK = """
import jax, pytest
from spin import spin

@pytest.mark.parametrize("us", {us})
def test_spin(benchmark, us):
    f, x = jax.jit(spin(us)), jax.numpy.float32(1)
    benchmark(lambda: f(x).block_until_ready())
"""

# The returned object holds the mean in ms rounded to 1 µs; its CSV file rounds to 10 µs.
PYTEST_JAX_BENCH = """
import json, pathlib
import jax, pytest
from spin import spin

@pytest.mark.parametrize("loops", [1, 100])
@pytest.mark.parametrize("us", {us})
def test_spin(jax_bench, us, loops):
    bench = jax_bench(jit_rounds=100, jit_warmup=2, jit_loops=loops)
    result, _ = bench.measure(None, jax.jit(spin(us)), jax.numpy.float32(1))
    with pathlib.Path("results.jsonl").open("a") as file:
        file.write(json.dumps([us, loops, result.jit_mean_ms * 1000]) + "\\n")
"""


def by_benchax(x: Any) -> Readings:
    found: Readings = {name: {} for name in (*OURS.values(), *WIDTHS.values(), FLOOR)}
    for us in TRUTHS_US:
        # Before and after, so that a change of the machine's pace meets the floor as well.
        before = floor_us(x)
        row = benchax.bench(spin(us), x, timer=",".join(TIMERS), verify="off", memory=False, store="off")
        found[FLOOR][us] = (before + floor_us(x)) / 2
        for timer in TIMERS:
            if summary := row.find_summary(timer):
                found[OURS[timer]][us] = summary.median_s * 1e6
                if summary.relative_width is not None:
                    found[WIDTHS[timer]][us] = summary.relative_width
            else:
                note(f"benchax {timer} at {us} µs: not measured, because {row.why_absent(f'samples.{timer}')}")
    return found


def floor_us(x: Any, calls: int = 10, samples: int = 300) -> float:
    """Call and wait of the same program with a wait of 0 µs. (Of an identity function JAX runs nothing at all.)"""
    f, times = jax.jit(spin(0)), []
    for _ in range(samples + 1):
        begun = perf_counter_ns()
        for _ in range(calls):
            f(x).block_until_ready()
        times.append((perf_counter_ns() - begun) / calls / 1000)
    return median(times[1:])


def by_timeit(x: Any) -> Readings:
    """What `python -m timeit` does: as many calls as take 0.2 s, five times, and the least."""
    found: dict[int, float] = {}
    for us in TRUTHS_US:
        f = jax.jit(spin(us))
        f(x).block_until_ready()
        timer = timeit.Timer(lambda f=f: f(x).block_until_ready())
        number, _ = timer.autorange()
        found[us] = min(timer.repeat(repeat=5, number=number)) / number * 1e6
    return {"timeit min of 5": found}


def by_pytest_benchmark(python: str) -> Readings:
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder, "result.json")
        test = PYTEST_BENCHMARK.format(us=list(TRUTHS_US))
        peers.session(python, test, Path(folder), ["-p", "no:pytest_jax_bench", f"--benchmark-json={result}"])
        rows = json.loads(result.read_text())["benchmarks"]
    return {
        f"pytest-benchmark {name}": {row["params"]["us"]: row["stats"][name] * 1e6 for row in rows}
        for name in ("min", "median", "mean")
    }


def by_pytest_jax_bench(python: str) -> Readings:
    with tempfile.TemporaryDirectory() as folder:
        peers.session(python, PYTEST_JAX_BENCH.format(us=list(TRUTHS_US)), Path(folder), ["-p", "no:benchmark"])
        rows = [json.loads(line) for line in Path(folder, "results.jsonl").read_text().splitlines()]
    names = {1: "pytest-jax-bench mean", 100: "pytest-jax-bench loops=100"}
    return {name: {us: found for us, n, found in rows if n == loops} for loops, name in names.items()}


def tools(python: str, installed: dict[str, str | None], x: Any) -> list[Callable[[], Readings]]:
    chosen: list[Callable[[], Readings]] = [lambda: by_benchax(x), lambda: by_timeit(x)]
    if installed["pytest-benchmark"]:
        chosen.append(lambda: by_pytest_benchmark(python))
    if installed["pytest-jax-bench"]:
        chosen.append(lambda: by_pytest_jax_bench(python))
    return chosen


def in_turns(chosen: list[Callable[[], Readings]], rounds: int) -> list[Readings]:
    found = []
    for i in range(rounds):
        turn: Readings = {}
        for k in range(len(chosen)):
            turn |= chosen[(i + k) % len(chosen)]()
        note(f"round {i + 1} of {rounds}, {load()}")
        found.append(turn)
    return found


def ratios(turns: list[Readings], name: str, truth: Callable[[Readings, int], float]) -> list[str]:
    """One cell for each true duration: median ratio of the rounds, and their range."""
    cells = []
    for us in TRUTHS_US:
        values = sorted(turn[name][us] / truth(turn, us) for turn in turns if us in turn.get(name, {}))
        cells.append(f"{median(values):.3f} [{values[0]:.2f}–{values[-1]:.2f}]" if values else "not measured")
    return cells


def report(turns: list[Readings], chain_us: dict[int, float]) -> None:
    columns = ["", *[f"{us} µs" for us in TRUTHS_US]]
    hidden = {FLOOR, *WIDTHS.values()}
    names = sorted({name for turn in turns for name in turn} - hidden)
    print("ratio to the truth")
    table(columns, [[name, *ratios(turns, name, lambda _, us: us)] for name in names])
    print("ratio to floor + truth")
    wall = OURS["wall"]
    table(columns, [[wall, *ratios(turns, wall, lambda turn, us: turn[FLOOR][us] + us)]])
    print("ratio to what the function takes in a chain of its own calls (the wait, and XLA's call of it)")
    resident = [OURS["in_graph"], OURS["loop"]]
    table(columns, [[name, *ratios(turns, name, lambda _, us: chain_us[us])] for name in resident])
    print("µs, median of the rounds")
    table(columns, [[name, *[median_cell(turns, name, us, "{:.2f}") for us in TRUTHS_US]] for name in [*names, FLOOR]])
    print("claimed by benchax: half the 95 % interval of the median, as a share")
    table(columns, [[name, *[median_cell(turns, name, us, "{:.1%}") for us in TRUTHS_US]] for name in WIDTHS.values()])


def median_cell(turns: list[Readings], name: str, us: int, form: str) -> str:
    values = [turn[name][us] for turn in turns if us in turn.get(name, {})]
    return form.format(median(values)) if values else "not measured"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 rounds instead of 5")
    parser.add_argument("--rounds", type=int, help="how often each tool measures")
    peers.add_option(parser)
    parser.add_argument("--neighbour", action="store_true", help="beside processes that compute in bursts")
    given = parser.parse_args()
    with busy_neighbour() if given.neighbour else nullcontext():
        compare(given)


def compare(given: argparse.Namespace) -> None:
    installed = peers.versions(given.python)
    beside = ", beside a busy neighbour" if given.neighbour else ""
    header(f"accuracy: functions of known duration{beside}", peers=peers.described(installed))
    try:
        chain_us = {us: check(us) for us in TRUTHS_US}
    except NoSpin as error:
        raise SystemExit(str(error)) from None
    print(
        "the functions themselves, in a chain: truth "
        + ", ".join(f"{chain_us[us] - us:+.2f} µs at {us}" for us in TRUTHS_US)
        + "\n"
    )
    turns = in_turns(tools(given.python, installed, jnp.float32(1)), given.rounds or (2 if given.quick else 5))
    report(turns, chain_us)
    print(load())


if __name__ == "__main__":
    main()
