"""The observed peak of memory on the CPU against a known truth: does a row's `*_rise_bytes` say what a call really
took?

Claimed: from 1 MiB up within 0.5 MiB or 3 % of the truth, whichever is greater, one case after another in one process.
Below about 0.5 MiB benchax says "not measured" and gives no number. What speaks against the claim is counted, not
hidden: an eager call may show more, since glibc can keep arrays below 32 MiB that were freed on the way
(`replaced`).

Each case (`memory_cases.py` argues the truth) is measured by `benchax.bench` several times over, all sizes in turns, so
that every measurement finds the heap as another one left it. `error` is the worst repeat. Beside it, for one call each:

    plan           JAX's memory_analysis: temporaries + outputs (knows no eager call)
    JAX peak       its peak_memory_in_bytes less the arguments
    RSS, maxrss    rise of psutil's RSS with the result still held, and of ru_maxrss: medians, in a process without
    benchax ptjb           what pytest-jax-bench stores, less the arguments; -1 is its "unknown"

    python benchmarks/memory.py [--quick] [--python PATH]      3 repeats of 48 cases, about 4 minutes
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import jax
import peers
import psutil
from memory_cases import CASES, MIB, MemoryCase, input_of, ready
from report import header, load, note, table

SIZES_MIB = (0.25, 1.0, 4.0, 16.0, 64.0, 256.0)
QUICK_SIZES_MIB = (0.25, 1.0, 16.0)
LEAST_ERROR_MIB, SHARE, FROM_MIB = 0.5, 0.03, 1.0
Key = tuple[str, float]
"""Case and size of its input in MiB."""

PYTEST_JAX_BENCH = """
import json, pathlib
import jax, pytest
from memory_cases import CASES, MIB, input_of

@pytest.mark.parametrize("size", {sizes})
@pytest.mark.parametrize("place", range(len(CASES)))
def test_memory(jax_bench, place, size):
    case, x = CASES[place], input_of(int(size * MIB))
    bench = jax_bench(jit_rounds=1, eager_rounds=1, eager_warmup=1)
    pair = (None, jax.jit(case.fn)) if case.is_jitted else (case.fn, None)
    result, _ = bench.measure(*pair, x)
    peak = result.jit_peak_bytes - x.nbytes if case.is_jitted else result.eager_peak_bytes
    with pathlib.Path("results.jsonl").open("a") as file:
        file.write(json.dumps([case.name, size, peak]) + "\\n")
"""


@dataclass
class Found:
    """What is known of one case at one size, in MiB; `None` where a tool says nothing."""

    truth: float
    rises: list[float | None] = field(default_factory=list)
    plan: float | None = None
    jax_peak: float | None = None
    rss: float | None = None
    maxrss: float | None = None
    ptjb: float | None = None

    @property
    def allowed(self) -> float:
        return max(LEAST_ERROR_MIB, SHARE * self.truth)

    @property
    def worst(self) -> float | None:
        """Error of the repeat that is furthest off; None where none gave a number."""
        return max((rise - self.truth for rise in self.rises if rise is not None), key=abs, default=None)

    @property
    def verdict(self) -> str:
        if None in self.rises:
            return "not measured" if self.truth < FROM_MIB else "MISSING"
        return "ok" if all(rise is not None and self.is_within(rise) for rise in self.rises) else "OFF"

    def is_within(self, rise: float) -> bool:
        return abs(rise - self.truth) <= self.allowed


def by_benchax(found: dict[Key, Found], sizes: Sequence[float], repeats: int) -> None:
    for i in range(repeats):
        for case, size in _all(sizes):
            found[case.name, size].rises.append(_rise(case, size))
        note(f"repeat {i + 1} of {repeats}, {load()}")


def _rise(case: MemoryCase, size: float) -> float | None:
    import benchax  # not in the process without it

    # The short sampling changes nothing: memory is observed in a pass of its own.
    row = benchax.bench(
        case.fn, input_of(int(size * MIB)), name=case.name, jit=case.is_jitted, timer="wall", max_time_s=0.02,
        min_time_s=0.01, verify="off", store="off",
    )  # fmt: skip
    if row.failure:
        raise RuntimeError(f"{case.name} at {size} MiB: {row.failure.message}")
    rise = row.memory.compiled_rise_bytes if case.is_jitted else row.memory.eager_rise_bytes
    return None if rise is None else rise / MIB


def by_plan(found: dict[Key, Found], sizes: Sequence[float]) -> None:
    """Raises `RuntimeError` where the compiler's plan contradicts the truth."""
    for case, size in _all(sizes):
        if not case.is_jitted:
            continue
        one = found[case.name, size]
        plan = jax.jit(case.fn).lower(input_of(int(size * MIB))).compile().memory_analysis()
        one.plan = (plan.temp_size_in_bytes + plan.output_size_in_bytes) / MIB
        one.jax_peak = (plan.peak_memory_in_bytes - plan.argument_size_in_bytes) / MIB
        if abs(one.plan - one.truth) > 0.01 * one.truth:
            raise RuntimeError(
                f"{case.name} at {size} MiB: the plan is {one.plan:.2f} MiB, not {one.truth:.2f}; wrong truth?"
            )


def by_rss(found: dict[Key, Found], sizes: Sequence[float], repeats: int) -> None:
    """In a child, because benchax sets the process's high-water mark back and changes glibc's thresholds."""
    command = [sys.executable, __file__, "--plain", str(repeats), *map(str, sizes)]
    answer = subprocess.run(command, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    readings: dict[Key, list[tuple[float, float]]] = {}
    for name, size, rss, maxrss in json.loads(answer.stdout):
        readings.setdefault((name, size), []).append((rss, maxrss))
    for key, pairs in readings.items():
        found[key].rss, found[key].maxrss = (median(column) for column in zip(*pairs, strict=True))


def plain(repeats: int, sizes: Sequence[float]) -> None:
    """The child of `by_rss`: what a script with psutil and ru_maxrss would see, in MiB, as JSON."""
    process, rows = psutil.Process(), []
    jitted = {case.name: jax.jit(case.fn) if case.is_jitted else case.fn for case in CASES}
    for _ in range(repeats):
        for case, size in _all(sizes):
            fn, x = jitted[case.name], input_of(int(size * MIB))
            ready(fn(x))
            gc.collect()
            rss, maxrss = process.memory_info().rss, _maxrss_bytes()
            result = ready(fn(x))
            rows.append((case.name, size, (process.memory_info().rss - rss) / MIB, (_maxrss_bytes() - maxrss) / MIB))
            del result
    print(json.dumps(rows))


def _maxrss_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def by_pytest_jax_bench(found: dict[Key, Found], sizes: Sequence[float], python: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        peers.session(python, PYTEST_JAX_BENCH.format(sizes=list(sizes)), Path(folder))
        for line in Path(folder, "results.jsonl").read_text().splitlines():
            name, size, peak = json.loads(line)
            found[name, size].ptjb = peak / MIB if peak >= 0 else -1


def _all(sizes: Sequence[float]) -> Iterator[tuple[MemoryCase, float]]:
    for size in sizes:
        for case in CASES:
            yield case, size


def report(found: dict[Key, Found]) -> None:
    columns = ("case", "S", "truth", "benchax", "error", "in %", "", "plan", "JAX peak", "RSS", "maxrss", "ptjb")
    rows = [(name, f"{size:g}", *_cells(one)) for (name, size), one in found.items()]
    print("MiB above the input; benchax: median of the repeats, error: the worst of them")
    table(columns, rows)
    for kind, is_jitted in (("compiled", True), ("eager", False)):
        names = {case.name for case in CASES if case.is_jitted is is_jitted}
        _judge(kind, {key: one for key, one in found.items() if key[0] in names and one.truth >= FROM_MIB})


def _judge(kind: str, claimed: dict[Key, Found]) -> None:
    readings = sum(len(one.rises) for one in claimed.values())
    good = sum(rise is not None and one.is_within(rise) for one in claimed.values() for rise in one.rises)
    print(
        f"{kind}, truth from {FROM_MIB:g} MiB up: {good} of {readings} readings within {LEAST_ERROR_MIB} MiB or "
        f"{SHARE:.0%}"
    )
    if measured := [(key, one, one.worst) for key, one in claimed.items() if one.worst is not None]:
        (name, size), one, worst = max(measured, key=lambda item: abs(item[2]) / item[1].allowed)
        print(f"    worst: {name} of {size:g} MiB, {worst:+.2f} MiB of {one.truth:g} ({worst / one.truth:+.1%})")


def _cells(one: Found) -> tuple[str, ...]:
    rises = [rise for rise in one.rises if rise is not None]
    return (
        f"{one.truth:.2f}",
        f"{median(rises):.2f}" if rises else "–",
        "–" if one.worst is None else f"{one.worst:+.2f}",
        "–" if one.worst is None else f"{one.worst / one.truth:+.1%}",
        one.verdict,
        *[
            "–" if value is None else f"{value:.2f}"
            for value in (one.plan, one.jax_peak, one.rss, one.maxrss, one.ptjb)
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 sizes and 2 repeats instead of 6 and 3")
    parser.add_argument("--repeats", type=int, help="how often benchax measures each case")
    peers.add_option(parser)
    parser.add_argument("--plain", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.plain:
        plain(int(given.plain[0]), [float(size) for size in given.plain[1:]])
        return
    sizes, repeats = (QUICK_SIZES_MIB, 2) if given.quick else (SIZES_MIB, 3)
    repeats = given.repeats or repeats
    installed = peers.versions(given.python)
    header("memory: observed rise against a known truth", ["psutil"], peers.described(installed))
    found = {(case.name, size): Found(case.multiple * size) for case, size in _all(sizes)}
    by_plan(found, sizes)
    by_benchax(found, sizes, repeats)
    by_rss(found, sizes, repeats)
    if installed["pytest-jax-bench"]:
        by_pytest_jax_bench(found, sizes, given.python)
    report(found)


if __name__ == "__main__":
    main()
