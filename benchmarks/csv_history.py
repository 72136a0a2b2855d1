"""Many rows in one CSV file of the plugin: the newest ones, all of them, one more.

    python benchmarks/csv_history.py                                  1 minute, 100 MB of disk
    python benchmarks/csv_history.py --python PATH                    beside the pytest-jax-bench of that interpreter

Two files with the same rows: ours, in full precision, with jit and eager times in every row and three tags in turn;
and the 18 columns of pytest-jax-bench 0.5.0, which both can read. Each reading is a process of its own; times are of
the call alone, with the file in the page cache of the system, best and median of `--repeats`; memory is the highest
resident memory of the process. The last line adds a row whose commit never ran, for which all of the file is searched.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import peers
from report import header, note, table

from pytest_jax_bench.csv.lines import CURRENT, complete, facts_of, line
from pytest_jax_bench.csv.lines import header as csv_header

PRELUDE = """
import json, resource, sys, time
from pathlib import Path
def report(call):
    times = []
    for _ in range(int(sys.argv[2])):
        before, cpu = time.perf_counter(), time.process_time()
        answer = call()
        times.append((time.perf_counter() - before, time.process_time() - cpu))
        count = len(answer)
        del answer
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"times": times, "rows": count, "peak_mib": peak}))
"""
OURS = """
from pytest_jax_bench.csv.files import append, newest_heads, read
from pytest_jax_bench.csv.lines import CURRENT, parse
path = Path(sys.argv[1])
"""
TASKS = {
    "newest 100 rows": OURS + "report(lambda: [parse(head['line'], CURRENT) for head in newest_heads(path)[:100]])",
    "newest 1000 rows": OURS + "report(lambda: [parse(head['line'], CURRENT) for head in newest_heads(path)[:1000]])",
    "read all": OURS + "report(lambda: read(path))",
    "append, known commit": OURS
    + "report(lambda: append(path, {'commit': 'c0ffee1', 'session': 'a'}, nodeid='', backend='', device=''))",
    "append, new commits": OURS
    + "n = iter(range(99)); r = lambda: {'commit': f'feed{next(n):03d}'}\n"
    + "report(lambda: append(path, r(), nodeid='', backend='', device=''))",
}
PEER = "from pytest_jax_bench.data import load_bench_data\nreport(lambda: load_bench_data(sys.argv[1]))"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="(100000)")
    parser.add_argument("--repeats", type=int, default=5, help="readings per process (5); the peer reads once")
    parser.add_argument("--folder", type=Path, help="where the files are made and removed again")
    peers.add_option(parser)
    options = parser.parse_args()
    installed = peers.versions(options.python)
    header(f"{options.rows} rows in one CSV file", ["numpy"], peers.described(installed))
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        ours, theirs = Path(folder) / "ours.csv", Path(folder) / "theirs.csv"
        note(f"writing {options.rows} rows twice")
        write(ours, theirs, options.rows)
        results = [result("benchax", task, code, ours, options.repeats) for task, code in TASKS.items()]
        results.append(result("benchax", "read all, 18 columns", TASKS["read all"], theirs, options.repeats))
        if version := installed["pytest-jax-bench"]:
            name = f"pytest-jax-bench {version}"
            results.append(result(name, "read all, 18 columns", PEER, theirs, 1, options.python))
        columns = ["what", "by", "best ms", "median ms", "best CPU ms", "peak MiB", "file MB"]
        table(columns, [row for row in results if row])


def result(by: str, task: str, code: str, path: Path, repeats: int, python: str = sys.executable) -> list[str]:
    note(f"{task} by {by}")
    done = subprocess.run(
        [python, "-c", PRELUDE + code, str(path), str(repeats)],
        capture_output=True, text=True, stdin=subprocess.DEVNULL, env=os.environ | {"JAX_PLATFORMS": "cpu"},
    )  # fmt: skip
    if done.returncode:
        note(done.stderr[-500:])
        return []
    answer: dict[str, Any] = json.loads(done.stdout)
    wall, cpu = ([1e3 * t for t in times] for times in zip(*answer["times"], strict=True))
    figures = [min(wall), statistics.median(wall), min(cpu), answer["peak_mib"], path.stat().st_size / 1e6]
    return [task, by, *(f"{figure:.1f}" if figure < 100 else f"{figure:.0f}" for figure in figures)]


# ---- the files --------------------------------------------------------------------------------------------------


def write(ours: Path, theirs: Path, rows: int) -> None:
    facts = {"created": "2025-11-21T01:35:00Z", "test_nodeid": "tests/test_fft.py::test_fft", "backend": "gpu"}
    with ours.open("w", encoding="utf-8") as full, theirs.open("w", encoding="utf-8") as short:
        full.writelines(f"{text}\n" for text in csv_header(facts))
        short.writelines(f"{text}\n" for text in old_header(facts))
        for row in history(rows):
            full.write(f"{line(row)}\n")
            short.write(f"{old_line(row)}\n")


def history(rows: int) -> Iterator[dict[str, Any]]:
    """Three tags per run, ten runs per commit. Times with the scatter and the digits of real ones."""
    random = np.random.default_rng(0)
    for i in range(rows):
        run, tag = divmod(i, 3)
        jit, eager = (
            random.lognormal(np.log(ms), 0.05, 50) for ms in ((11.3, 5.9, 0.012)[tag], (11.9, 6.4, 0.85)[tag])
        )
        yield complete(
            {
                "run_id": run, "commit": f"{run // 10:07x}", "commit_run": run % 10, "tag": ("fft", "rfft", "sum")[tag],
                "parameters": "n-256", "compile_ms": float(random.lognormal(4, 0.1)),
                "first_run_ms": float(random.lognormal(1, 0.1)), "jit_peak_bytes": 25296896 + run // 100,
                "jit_constants_bytes": 4, "jit_temporary_bytes": 8519680, "eager_peak_bytes": 33816576,
                "jit_rounds": 50, "jit_warmup": 2, "eager_rounds": 50, "eager_warmup": 1, "jit_loops": 1,
                "timer": "wall", "status": "ok", "created": f"2025-11-{run % 28 + 1:02}T01:35:{i % 60:02}.{i:06}Z",
                "session": f"{run:032x}", "environment": "5f0e3c1d2b4a6978", "jax": "0.10.2",
                **times("jit", jit), **times("eager", eager),
            }
        )  # fmt: skip


def times(kind: str, samples_ms: Any) -> dict[str, float]:
    low, median, high = (float(q) for q in np.quantile(samples_ms, (0.36, 0.5, 0.64)))
    return {
        f"{kind}_mean_ms": float(samples_ms.mean()), f"{kind}_std_ms": float(samples_ms.std()),
        f"{kind}_median_ms": median, f"{kind}_low_ms": low, f"{kind}_high_ms": high,
        f"{kind}_min_ms": float(samples_ms.min()),
    }  # fmt: skip


def old_header(facts: dict[str, str]) -> list[str]:
    listed = [f"# {f'({i})':>4} {name}" for i, name in enumerate(CURRENT[:18], 1)]
    return ["# pytest-jax-bench", *(f"# {k}: {v}" for k, v in facts_of([]).items() | facts.items()), *listed]


def old_line(row: dict[str, Any]) -> str:
    """As pytest-jax-bench 0.5.0 writes a row."""
    values = [row[name] for name in CURRENT[:18]]
    return "".join(f" {value:11.2f}" if isinstance(value, float) else f" {value:>11}" for value in values)


if __name__ == "__main__":
    main()
