"""What benchax costs: beside pytest-benchmark, on top of what it was asked to do, and at start-up.

Beside pytest-benchmark: sessions of the same 20 small benchmarks, in turns, each with the defaults of its tool. CPU
time is that of the process and of all that it starts. `benchax run` runs with nothing stored or kept (first run), with
eight earlier runs (ninth run), and with --quick and nothing kept. pytest-benchmark calls a jitted function that has
been called before, and waits for its result: without the call before, its calibration takes compiling for a call.

Claimed: CPU time <= 2.0 x pytest-benchmark's on the first run, 1.3 x from the ninth on, 0.7 x with --quick. Both sample
for a time by the clock, so on a machine with other work both use less CPU time for it, and pytest-benchmark saves most.

On top of what it was asked to do: the suite of 25 runs as `benchax run --processes 1` runs it: default options, every
row stored. From outside, each step is timed by a wrapper around it, exclusively (what a step calls and is listed itself
is not counted twice). Groups:

    asked     tracing, lowering and compiling the function; building the programs that time it; the first run; warming
              up; the time inside samples; the eager run that the result is compared with
    shown     further readings that have their own place in the row: memory, transfers, dispatch, the comparison of the
              results, the compiler's plan. They can be judged by what they cost here
    own       the rest: finding how many calls make a sample, deciding when to stop, noise, environment, remarks, store

One process for each benchmark; what further ones cost is told by `coverage.py`.

Claimed: wall time <= 1.10 x asked, `shown` left out; the table says both. Start-up: `import benchax` and `benchax
--help` at most 150 ms above `python -c pass`, as the median difference of interleaved runs.

    python benchmarks/own_cost.py --python .venv-peers/bin/python [--quick] [--part peer|asked|start]

Without --quick: 7 rounds of sessions, 25 benchmarks and 15 starts, about 15 minutes.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter, perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
import peers
from own_suite import suite
from ptjb import run
from report import header, load, note, table

from benchax import api
from benchax.machine import noise
from benchax.measuring import engine, memory, prepare, record, sampling, verification
from benchax.measuring.timers import in_graph, loop
from benchax.store.database import DatabaseStore

SHARE, START_MS = 1.10, 150.0
CLAIMED = {"first run": 2.0, "ninth run": 1.3, "--quick": 0.7}
EARLIER = 8
OURS = """
import benchax
from own_suite import SMALL

for name, fn, args in SMALL:
    globals()[name] = benchax.benchmark(fn, args=args, name=name)
"""
PEER = """
import jax, pytest
from own_suite import SMALL, arrays

@pytest.mark.parametrize("name, fn, args", SMALL, ids=[name for name, _, _ in SMALL])
def test_small(benchmark, name, fn, args):
    f, args = jax.jit(fn), arrays(args)
    jax.block_until_ready(f(*args))
    benchmark(lambda: jax.block_until_ready(f(*args)))
"""
BUILD = ("trace", "lower", "compile")
REST, CALIBRATING, BETWEEN = "everything else", "calls per sample", "between samples"

STEPS: tuple[tuple[str, str, Any, str], ...] = (
    ("asked", "build the timers", loop, "_compiled"),
    ("asked", "build the timers", in_graph, "_compiled"),
    ("asked", "first run", prepare.Prepared, "call_first"),
    ("asked", "warm-up", engine, "warm_up"),
    ("asked", "warm-up", engine, "call_again"),
    ("asked", "eager run", verification, "_expected"),
    ("shown", "comparison of results", verification, "verify"),
    ("shown", "memory", memory, "observe_memory"),
    ("shown", "transfers", engine, "transfer_in"),
    ("shown", "transfers", engine, "transfer_out"),
    ("shown", "dispatch", engine, "_dispatch"),
    ("shown", "plan, cost, HLO", engine, "_artifacts"),
    ("shown", "plan, cost, HLO", prepare, "inline_flops"),
    ("own", "inputs", prepare, "make_inputs"),
    ("own", "build, beside its stages", engine, "_build"),
    ("own", CALIBRATING, sampling, "calibrate"),
    ("own", "when to stop", sampling, "decide"),
    ("own", "garbage collection", gc, "collect"),
    ("own", BETWEEN, engine, "collect"),
    ("own", "prepare timers", loop, "prepare"),
    ("own", "prepare timers", in_graph, "prepare"),
    ("own", "interval above zero?", engine, "reject_implausible"),
    ("own", "noise", noise, "_own_s"),
    ("own", "noise", noise, "finish"),
    ("own", "remarks", engine, "remarks"),
    ("own", "environment", record, "capture"),
    ("own", "store", api, "_store"),
    ("own", "earlier runs", DatabaseStore, "find_earlier_runs"),
)
"""(group, part, where, name of the function). Trace, lower, compile and samples are wrapped by hand below."""


class Stopwatch:
    """Time by part. Entering a part stops the one around it, so that the parts add up to the whole."""

    def __init__(self) -> None:
        self.ns: dict[str, int] = defaultdict(int)
        self.parts = [REST]
        self.last = perf_counter_ns()

    def enter(self, part: str) -> None:
        self._book()
        self.parts.append(part)

    def leave(self) -> None:
        self._book()
        self.parts.pop()

    def around(self, part: str, fn: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            self.enter(part)
            try:
                return fn(*args, **kwargs)
            finally:
                self.leave()

        return wrapped

    def _book(self) -> None:
        now = perf_counter_ns()
        self.ns[self.parts[-1]] += now - self.last
        self.last = now


def instrument(watch: Stopwatch) -> dict[str, str]:
    """Wraps every step; returns the group of each part."""
    for _, part, where, name in STEPS:
        setattr(where, name, watch.around(part, getattr(where, name)))
    _wrap_stages(watch)
    _wrap_samples(watch)
    groups = {part: group for group, part, _, _ in STEPS}
    return dict.fromkeys((*BUILD, "samples"), "asked") | groups | {REST: "own"}


def _wrap_stages(watch: Stopwatch) -> None:
    time_step = prepare.Prepared._time

    def wrapped(self: prepare.Prepared, name: str, call: Any) -> Any:
        return time_step(self, name, watch.around(name, call))

    prepare.Prepared._time = wrapped


def _wrap_samples(watch: Stopwatch) -> None:
    """Calls that only find out how many calls make a sample stay with that part.

    A sample may last 100 µs, of which the wrapper takes 0.2 µs; the stopwatch would take more.
    """
    collect = engine.collect

    def collected(timer: str, prepared: Any, *rest: Any, **named: Any) -> Any:
        inside_ns = 0

        def timed(n: int) -> int:
            nonlocal inside_ns
            begun = perf_counter_ns()
            reading = prepared.sample(n)
            if watch.parts[-1] != CALIBRATING:
                inside_ns += perf_counter_ns() - begun
            return reading

        def taken(n: int, count: int) -> list[int]:
            nonlocal inside_ns
            readings = prepared.take(n, count)
            if watch.parts[-1] != CALIBRATING:
                inside_ns += sum(readings)  # what surrounds them in their program is ours
            return readings

        take = taken if prepared.take else None
        samples = collect(timer, replace(prepared, sample=timed, take=take), *rest, **named)
        watch.ns["samples"] += inside_ns
        watch.ns[BETWEEN] -= inside_ns
        return samples

    engine.collect = collected


def peer_cost(python: str, rounds: int) -> None:
    """Sessions of all kinds in turns; the first of each leaves byte code behind and isn't counted."""
    if not peers.versions(python)["pytest-benchmark"]:
        print(f"pytest-benchmark: not measured, because {python} has no pytest-benchmark; name another by --python\n")
        return
    took: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        history = Path(scratch, "history")
        for i in range(EARLIER):
            note(f"earlier run {i + 1} of {EARLIER}: {_ours(history):.1f} s, {load()}")
        for i in range(rounds + 1):
            for name, cpu_s in _one_round(python, Path(scratch, str(i)), history):
                note(f"round {i} of {rounds}: {name} {cpu_s:.1f} s, {load()}")
                took.setdefault(name, []).extend([cpu_s] if i else [])
    print(
        f"20 small benchmarks, CPU s of all processes, {rounds} rounds in turns; x: of pytest-benchmark's in that round"
    )
    rows = [
        (name, f"{median(many):.1f}", _ratio(many, took["pytest-benchmark"]), str(CLAIMED.get(name, "")))
        for name, many in took.items()
    ]
    table(("", "median s", "x", "claimed at most"), rows)


def _one_round(python: str, folder: Path, history: Path) -> Iterator[tuple[str, float]]:
    """(kind of session, its CPU seconds)"""
    yield "pytest-benchmark", _peer(folder / "peer", python)
    yield "first run", _ours(folder / "first")
    yield "ninth run", _ours(history)
    yield "--quick", _ours(folder / "quick", "--quick")


def _ratio(many: list[float], peer: list[float]) -> str:
    ratios = sorted(one / other for one, other in zip(many, peer, strict=True))
    return f"{median(ratios):.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"


def _ours(folder: Path, *options: str) -> float:
    """CPU seconds of `benchax run`, whose store and all that it keeps are in `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    Path(folder, "bench_small.py").write_text(OURS, encoding="utf-8")
    command = [sys.executable, "-c", "from benchax.cli.main import main; main()", "run", "bench_small.py", *options]
    return _cpu_s(command, folder)


def _peer(folder: Path, python: str) -> float:
    folder.mkdir(parents=True)
    Path(folder, "test_small.py").write_text(PEER, encoding="utf-8")
    return _cpu_s([python, "-m", "pytest", "-q", "-p", "pytest_benchmark.plugin", "--rootdir", str(folder)], folder)


def _cpu_s(command: list[str], folder: Path) -> float:
    # What else is installed has plugins, too. Byte code is in the folder of each package, not of the session.
    os.environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(peers.HERE)}
    os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
    return run(command, folder).cpu_s


def suite_cost(chosen: int | None) -> None:
    cases, watch = suite(chosen), Stopwatch()
    jax.block_until_ready(jnp.ones(8) + 1)  # the backend starts once in a session; that is not what is asked here
    groups = instrument(watch)
    with tempfile.TemporaryDirectory() as folder:
        watch.ns.clear()
        watch.last = begun = perf_counter_ns()
        rows = []
        for i, row in enumerate(api.run(cases, call={"store": folder})):
            rows.append(row)
            note(f"{i + 1} of {len(cases)}: {row.case.label} {row.status}, {load()}")
        watch._book()
        wall_ns = perf_counter_ns() - begun
    for row in rows:
        if row.failure:
            print(f"failed: {row.case.label}: {row.failure.message}")
    report(watch, groups, wall_ns, len(rows))


def report(watch: Stopwatch, groups: dict[str, str], wall_ns: int, n: int) -> None:
    totals = {
        group: sum(ns for part, ns in watch.ns.items() if groups[part] == group) for group in ("asked", "shown", "own")
    }
    print(f"{n} benchmarks with default options: {wall_ns / 1e9:.1f} s, {wall_ns / n / 1e9:.2f} s each")
    rows = []
    for group, total_ns in totals.items():
        rows.append((group.upper(), *_cells(total_ns, wall_ns, totals["asked"], n)))
        parts = sorted((ns, part) for part, ns in watch.ns.items() if groups[part] == group)
        rows += [("    " + part, *_cells(ns, wall_ns, totals["asked"], n)) for ns, part in reversed(parts)]
    table(("", "s", "ms a benchmark", "of wall", "of asked"), rows)
    share = 1 + totals["own"] / totals["asked"]
    print(f"(asked + own) / asked          {share:.3f}   claimed: at most {SHARE:.2f}; {load()}")
    print(f"(asked + shown + own) / asked  {wall_ns / totals['asked']:.3f}\n")


def _cells(ns: float, wall_ns: float, asked_ns: float, n: int) -> tuple[str, ...]:
    return f"{ns / 1e9:.2f}", f"{ns / n / 1e6:.1f}", f"{ns / wall_ns:.1%}", f"{ns / asked_ns:.1%}"


STARTS = {
    "import benchax": ("-c", "import benchax"),
    "benchax --help": ("-c", "from benchax.cli.main import main; main()", "--help"),
    "import jax": ("-c", "import jax"),
}
BARE = ("-c", "pass")


def start_cost(rounds: int) -> None:
    """Each start beside a bare interpreter, in turns."""
    found: dict[str, list[float]] = {name: [] for name in STARTS}
    bare_ms = []
    for command in STARTS.values():
        _start_ms(command)  # the files are in the page cache from then on
    for _ in range(rounds):
        for name, command in STARTS.items():
            bare_ms.append(_start_ms(BARE))
            found[name].append(_start_ms(command) - bare_ms[-1])
    print(f"start-up beyond `python -c pass` ({median(bare_ms):.0f} ms), ms, {rounds} pairs each")
    rows = [(name, *(f"{v:.0f}" for v in (median(ms), min(ms), max(ms)))) for name, ms in found.items()]
    table(("", "median", "least", "most"), rows)
    print(f"claimed: at most {START_MS:.0f} ms for benchax; `import jax` is there for comparison")


def _start_ms(command: tuple[str, ...]) -> float:
    begun = perf_counter()
    subprocess.run([sys.executable, *command], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return (perf_counter() - begun) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="2 rounds of sessions, 5 benchmarks and 5 starts")
    parser.add_argument("--part", choices=("peer", "asked", "start"), help="only this")
    peers.add_option(parser)
    given = parser.parse_args()
    header("own cost: what benchax costs", peers=peers.described(peers.versions(given.python)))
    if given.part in (None, "start"):
        start_cost(5 if given.quick else 15)
        print()
    if given.part in (None, "peer"):
        peer_cost(given.python, 2 if given.quick else 7)
    if given.part in (None, "asked"):
        suite_cost(5 if given.quick else None)
    print(load())


if __name__ == "__main__":
    main()
