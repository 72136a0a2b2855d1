"""How often is each tool wrong? Unchanged code, and code that is 5 and 10 % slower, judged by benchax and by others.

A session judges six kernels (`kernels.py`) four times: twice unchanged, once 5 % and once 10 % slower. Every tool first
measures the baseline in its own way, and afterwards, in new processes, the candidate:

    benchax             keeps the baseline's program and compares (`benchax compare`): paired, confirmed
    pytest-benchmark    two runs; slower where mean, median or min is above by more than 5 % (--benchmark-compare-fail)
    pytest-jax-bench    two runs of 20 rounds; slower where it is red: means apart by more than 2 sqrt(s1² + s2²)

Tools take turns in random order, so that they meet the same noise. In brackets: exact 95 % intervals of the shares
(Clopper & Pearson 1934). Claimed for benchax: unchanged called slower <= 1 %; +10 % called slower >= 95 %, undecided
<= 5 %; +5 % called slower >= 80 %; intervals hold the effect of all sessions together in >= 93 %.

With `--resolution 1%` "same" means within 1 %, and a session judges twice unchanged, 2 and 5 % slower code. Claimed:
unchanged called slower or faster <= 1 %; +2 % called slower >= 90 %.

benchax skips programs that are one. Here it does not: unchanged code is really measured, and costs what it costs.

    python benchmarks/verdicts.py --python PATH [--sessions 20] [--others 8] [--neighbour]      2 minutes a session
    python benchmarks/verdicts.py --resolution 1% --others 0 [--sessions 20]                    5 minutes a session
    python benchmarks/verdicts.py --kernels k2,k20,k200 --others 1 --sessions 2                 in short: 3 minutes
    python benchmarks/verdicts.py --kernels k2,k20,k200 --resolution 1% --others 0 --sessions 2
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import peers
from kernels import TURNS, data, kernel
from report import busy_neighbour, header, load, note, table

from benchax import api
from benchax.case import Case
from benchax.comparing.judging import resolution_of
from benchax.comparing.sequential import Effort, effort_for
from benchax.environment import capture
from benchax.model import CaseId, Comparison
from benchax.paired_runs import compare
from benchax.paired_runs.session import compare_runs
from benchax.stats.intervals import share_interval
from benchax.stats.verdicts import SAME_WITHIN
from benchax.store.baselines import by_case
from benchax.store.database import open_store

CASES: list[tuple[str, str, int]] = []
"""(kernel, change, copy), by `choose`."""
CHANGES: list[str] = []
EFFORTS = [Effort(skips_equal=False)]
"""Of benchax; the one in use is the last."""
THRESHOLD = 1.05

TEST = """
import json, os, pathlib, sys
sys.path.insert(0, {here!r})
import jax, pytest
from kernels import TURNS, data, kernel
CASES = {cases!r}
IS_CANDIDATE = {is_candidate!r}

def built(name, change):
    return jax.jit(kernel(name, TURNS[name][change if IS_CANDIDATE else "A/A"])), data(name)
"""
PYTEST_BENCHMARK = """
@pytest.mark.parametrize("i", range(len(CASES)))
def test_case(benchmark, i):
    f, args = built(*CASES[i][:2])
    f(*args).block_until_ready()
    benchmark(lambda: f(*args).block_until_ready())
"""
PYTEST_JAX_BENCH = """
@pytest.mark.parametrize("i", range(len(CASES)))
def test_case(jax_bench, i):
    f, args = built(*CASES[i][:2])
    jax_bench(jit_rounds=20, jit_warmup=1).measure(None, f, *args)
"""


READ = """
import json, sys
from pytest_jax_bench import load_bench_data
rows = [load_bench_data(path)[-1] for path in sys.argv[1:]]
print(json.dumps([[float(row["jit_mean_ms"]), float(row["jit_std_ms"])] for row in rows]))
"""


@dataclass(frozen=True)
class Told:
    """What a tool said of one case."""

    case: int
    verdict: str
    comparison: Comparison | None = None


Judge = Callable[[], dict[str, list[Told]]]
"""What each reading of a tool's figures says; called after the baseline was measured."""


def choose(kernels: Sequence[str], resolution: float) -> None:
    """What is judged, and how long benchax goes on."""
    EFFORTS.append(replace(effort_for(resolution), skips_equal=False))
    CHANGES[:] = ["A/A", *(["+2 %", "+5 %"] if resolution < SAME_WITHIN else ["+5 %", "+10 %"])]
    CASES[:] = [
        (name, change, copy) for name in kernels for change, copy in zip(["A/A", *CHANGES], (0, 1, 0, 0), strict=True)
    ]


# ---- the tools --------------------------------------------------------------------------------------------------


def cases(is_candidate: bool) -> list[Case]:
    return [
        Case(
            kernel(name, TURNS[name][change if is_candidate else "A/A"]),
            lambda name=name: (data(name), {}),
            CaseId(name, (("change", change), ("copy", copy))),
        )
        for name, change, copy in CASES
    ]


def benchax(folder: Path, python: str) -> Judge:
    options = {"stages": "build", "memory": False, "verify": "off", "store": str(folder)}
    rows = list(api.run(cases(False), call=options))
    store, positions = open_store(folder), {case.id: i for i, case in enumerate(cases(True))}

    def judge() -> dict[str, list[Told]]:
        baseline = compare.StoredVersion("baseline", by_case(rows), store)
        paired_runs, _ = compare.pair_with_cases(baseline, cases(True), capture())
        runs = [c for each in compare_runs(paired_runs, EFFORTS[-1]) for c in each if c.metric == "run"]
        return {"benchax": [Told(positions[c.case], c.verdict, c) for c in runs]}

    return judge


def pytest_benchmark(folder: Path, python: str) -> Judge:
    def measured(is_candidate: bool) -> dict[int, dict[str, float]]:
        output = folder / "out.json"
        session(python, folder, PYTEST_BENCHMARK, is_candidate, "-p", "no:ptjb", f"--benchmark-json={output}")
        found = json.loads(output.read_text())["benchmarks"]
        return {benchmark["params"]["i"]: benchmark["stats"] for benchmark in found}

    before = measured(False)

    def judge() -> dict[str, list[Told]]:
        after = measured(True)
        return {
            f"pytest-benchmark {kind} > 5 %": [
                Told(i, "slower" if after[i][kind] > THRESHOLD * before[i][kind] else "same") for i in before
            ]
            for kind in ("mean", "median", "min")
        }

    return judge


def pytest_jax_bench(folder: Path, python: str) -> Judge:
    def measured(is_candidate: bool) -> dict[int, tuple[float, float]]:
        session(python, folder, PYTEST_JAX_BENCH, is_candidate)
        files = [next((folder / ".benchmarks").rglob(f"i-{i}.csv")) for i in range(len(CASES))]
        done = subprocess.run([python, "-c", READ, *map(str, files)], check=True, capture_output=True, text=True)
        return dict(enumerate(map(tuple, json.loads(done.stdout))))

    before = measured(False)

    def judge() -> dict[str, list[Told]]:
        after = measured(True)
        is_red = {
            i: after[i][0] - before[i][0] > 2 * sqrt(before[i][1] ** 2 + after[i][1] ** 2) for i in range(len(CASES))
        }
        return {"pytest-jax-bench red": [Told(i, "slower" if red else "same") for i, red in is_red.items()]}

    return judge


TOOLS = {"benchax": benchax, "pytest-benchmark": pytest_benchmark, "pytest-jax-bench": pytest_jax_bench}


def session(python: str, folder: Path, test: str, is_candidate: bool, *options: str) -> None:
    """A pytest session of a peer. Raises RuntimeError with what it said where it fails."""
    code = TEST.format(here=str(Path(__file__).parent), cases=CASES, is_candidate=is_candidate) + test
    (folder / "test_kernels.py").write_text(code, encoding="utf-8")
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr)[-2000:])


# ---- the protocol -----------------------------------------------------------------------------------------------


def sessions(count: int, others: int, python: str) -> tuple[dict[str, list[Told]], dict[str, list[float]]]:
    """All verdicts, and seconds per verdict (both runs), by reading and by tool."""
    told: dict[str, list[Told]] = defaultdict(list)
    spent: dict[str, list[float]] = defaultdict(list)
    dice = random.Random(1)
    for s in range(count):
        note(f"session {s + 1} of {count}   {load()}")
        chosen = list(TOOLS) if s < others else ["benchax"]
        with tempfile.TemporaryDirectory() as scratch:
            judges: dict[str, Judge] = {}
            for tool in dice.sample(chosen, len(chosen)):
                folder = Path(scratch) / tool
                folder.mkdir()
                begun = perf_counter()
                judges[tool] = TOOLS[tool](folder, python)
                spent[tool].append(perf_counter() - begun)
            for tool in dice.sample(chosen, len(chosen)):
                begun = perf_counter()
                for reading, verdicts in judges[tool]().items():
                    told[reading] += verdicts
                spent[tool][-1] += perf_counter() - begun
    return told, {tool: [s / len(CASES) for s in many] for tool, many in spent.items()}


def share(hits: int, n: int) -> str:
    """7.1 % [4.2, 11.0]"""
    low, high = share_interval(hits, n)
    return f"{100 * hits / n:.1f} % [{100 * low:.1f}, {100 * high:.1f}]"


def report(told: dict[str, list[Told]], spent: dict[str, list[float]]) -> None:
    small, large = CHANGES[1:]
    columns = [
        "judged by",
        "A/A slower",
        "A/A faster",
        f"{small} slower",
        f"{large} slower",
        f"{large} undecided",
        "verdicts",
    ]
    rows = []
    for reading, verdicts in told.items():
        by = {change: [t.verdict for t in verdicts if CASES[t.case][1] == change] for change in CHANGES}
        cells = [
            share(by[change].count(word), len(by[change])) if word == "slower" or reading == "benchax" else "–"
            for change, word in (
                ("A/A", "slower"), ("A/A", "faster"), (small, "slower"), (large, "slower"), (large, "unclear"),
            )
        ]  # fmt: skip
        rows.append([reading, *cells, str(len(verdicts))])
    table(columns, rows)
    ours = told["benchax"]
    print("\n".join(effects(ours)))
    aa = [t.verdict for t in ours if CASES[t.case][1] == "A/A"]
    counts = ", ".join(f"{word} {aa.count(word)}" for word in ("same", "unclear", "slower", "faster"))
    print(f"\nbenchax, unchanged: {counts}")
    by_cpu = sum(t.comparison is not None and t.comparison.is_by_cpu_time for t in ours)
    print(f"decided by processor time, where the wall time left it open: {by_cpu} of {len(ours)}")
    table(["seconds a verdict", "median"], [[tool, f"{median(many):.2f}"] for tool, many in spent.items()])


def effects(ours: Sequence[Told]) -> list[str]:
    """What was planted, as measured by all sessions together, and how many intervals hold it."""
    ratios: dict[tuple[str, str], list[Comparison]] = defaultdict(list)
    for t in ours:
        if t.comparison is not None and t.comparison.ratio is not None:
            ratios[CASES[t.case][:2]].append(t.comparison)
    lines, held, n = [], 0, 0
    for change in CHANGES:
        pooled = {name: median([c.ratio or 1 for c in ratios[name, change]]) for name in TURNS if ratios[name, change]}
        lines.append(f"{change:>6}: " + "  ".join(f"{name} {100 * (r - 1):+.1f} %" for name, r in pooled.items()))
        for name, ratio in pooled.items():
            for c in ratios[name, change]:
                n += 1
                held += (c.low or 0) <= ratio <= (c.high or float("inf"))
    return ["effects of all sessions together", *lines, f"held by {share(held, n)} of the intervals"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_option(parser)
    parser.add_argument("--sessions", type=int, default=20, help="(20)")
    parser.add_argument("--others", type=int, default=8, help="sessions that the other tools take part in (8)")
    parser.add_argument("--neighbour", action="store_true", help="beside processes that compute in bursts")
    parser.add_argument(
        "--resolution", default="5%", help="of benchax (5%%); below it, +2 %% is judged in place of +10 %%"
    )
    parser.add_argument("--kernels", default=",".join(TURNS), help=f"some of {','.join(TURNS)} (all)")
    given = parser.parse_args()
    choose([name for name in TURNS if name in given.kernels.split(",")], resolution_of(given.resolution))
    found: Any = peers.versions(given.python)
    for tool in ("pytest-benchmark", "pytest-jax-bench"):
        if found[tool] is None:
            del TOOLS[tool]
    with busy_neighbour() if given.neighbour else nullcontext():
        beside = ", beside a busy neighbour" if given.neighbour else ""
        fine = f", at a resolution of {given.resolution}" if EFFORTS[-1].resolution < SAME_WITHIN else ""
        header("verdicts on unchanged and on slower code" + beside + fine, ["scipy"], peers.described(found))
        told, spent = sessions(given.sessions, given.others, given.python)
    report(told, spent)
    print(load())


if __name__ == "__main__":
    main()
