"""Two promises of the store, measured: many writers lose nothing, and a list of rows does not slow down with the years.

    python benchmarks/store.py                                     all of it: 12 minutes on two cores, 2 GB of disk
    python benchmarks/store.py --rows 8000 --history 100000        a first impression

Writers: `--rows` rows, appended by `--writers` processes to one SQLite file, one transaction each; every id that
`append` returned is looked up afterwards. History: `--history` rows over each number of `--cases`, interleaved as
runs would leave them and put in by bulk inserts; then the 30 newest rows, as `benchax list` reads them, each time on a
new connection, with the file in the page cache of the system.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchax.codec import encode
from benchax.model import CaseId, Environment, Measurement, Samples, Stages
from benchax.options import DEFAULTS
from benchax.store.database import open_store
from benchax.store.schema import SCALARS, Connection, case_columns, migrate, row_of

CHUNK, NEWEST = 10_000, 30

ENVIRONMENT = Environment(
    host="node-17",
    os="Linux 6.1.0-28-amd64",
    python="3.11.2",
    processor="AMD EPYC 9654 96-Core Processor",
    cores=4,
    affinity=(0, 1, 2, 3),
    memory_bytes=16 * 2**30,
    benchax="0.1.0",
    jax="0.10.2",
    jaxlib="0.10.2",
    numpy="2.4.6",
    backend="cpu",
    device_kind="cpu",
    device_count=1,
    process_count=1,
    config={"jax_enable_x64": False, "jax_default_matmul_precision": None},
    commit="0123456789abcdef0123456789abcdef01234567",
    branch="main",
    is_dirty=False,
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000, help="appended by all writers together (100000)")
    parser.add_argument("--writers", type=int, default=8, help="processes (8)")
    parser.add_argument("--history", type=int, default=1_000_000, help="rows to list the newest of (1000000)")
    parser.add_argument("--cases", type=int, nargs="*", default=[1_000, 10_000], help="(1000 10000)")
    parser.add_argument("--folder", type=Path, help="where the files are made and removed again")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        print(f"SQLite {sqlite3.sqlite_version}, {folder}\n")
        report_writers(Path(folder) / "writers.db", options.writers, options.rows)
        for number in options.cases:
            report_newest(Path(folder) / f"{number}.db", number, options.history)


# ---- writers ----------------------------------------------------------------------------------------------------


def report_writers(path: Path, writers: int, rows: int) -> None:
    start = time.perf_counter_ns()
    with multiprocessing.get_context("spawn").Pool(writers) as pool:
        answers = pool.starmap(append_rows, [(path, w, rows // writers) for w in range(writers)], chunksize=1)
    elapsed_s = (time.perf_counter_ns() - start) / 1e9

    appended = [id for ids, _ in answers for id in ids]
    times_ms = sorted(1e3 * t for _, times_s in answers for t in times_s)
    median, p99, worst = statistics.median(times_ms), times_ms[int(0.99 * len(times_ms))], times_ms[-1]
    stored = {r.id for r in open_store(path).rows()}
    lost = len(set(appended) - stored)
    print(f"{'writers':>8} {'rows':>9} {'lost':>6} {'rows/s':>8} {'median ms':>10} {'p99 ms':>8} {'max ms':>8}")
    print(
        f"{writers:>8} {len(appended):>9} {lost:>6} {len(appended) / elapsed_s:>8.0f} {median:>10.2f} {p99:>8.1f} "
        f"{worst:>8.0f}\n"
    )
    if lost or len(set(appended)) != len(appended) or len(stored) != len(appended):
        raise SystemExit(
            f"{len(appended)} rows were appended, {len(set(appended))} ids given, {len(stored)} rows found"
        )


def append_rows(path: Path, writer: int, rows: int) -> tuple[list[int], list[float]]:
    """(ids that `append` returned, seconds that each call took)."""
    store = open_store(path)
    ids, times_s = [], []
    for i in range(rows):
        m = measurement(case=i % 100, run=f"writer-{writer}", samples=50)
        start = time.perf_counter_ns()
        ids.append(store.append(m))
        times_s.append((time.perf_counter_ns() - start) / 1e9)
    return ids, times_s


# ---- history ----------------------------------------------------------------------------------------------------


def report_newest(path: Path, number: int, history: int) -> None:
    store = open_store(path)
    store.place.write(lambda c: fill(c, number, history))
    times_ms = [1e3 * seconds(lambda: store.rows(limit=NEWEST)) for _ in range(9)]
    size_mb = path.stat().st_size / 1e6
    print(f"{'rows':>9} {'cases':>7} {'file MB':>9} {'newest rows, median ms':>24} {'min':>7} {'max':>7}")
    print(
        f"{history:>9} {number:>7} {size_mb:>9.0f} {statistics.median(times_ms):>24.1f} "
        f"{min(times_ms):>7.1f} {max(times_ms):>7.1f}"
    )
    print()
    path.unlink()


def fill(connection: Connection, number: int, history: int) -> None:
    migrate(connection, "the history")
    first = [measurement(case, run="history", samples=50) for case in range(number)]
    connection.insert("cases", [case_columns(m.case) | {"id": i + 1} for i, m in enumerate(first)])
    values = [columns(m) | {"case_id": i + 1} for i, m in enumerate(first)]
    for chunk in chunks(history):
        connection.insert("measurements", [values[i % number] for i in chunk])


def chunks(count: int) -> Iterator[range]:
    return (range(start, min(start + CHUNK, count)) for start in range(0, count, CHUNK))


def columns(m: Measurement) -> dict[str, Any]:
    row, bare = row_of(m), dataclasses.replace(m.samples[0], elapsed_s=(), disturbed=None)
    document = encode(dataclasses.replace(m, samples=(bare,)))
    return {name: getattr(row, name) for name in SCALARS} | {"document": document}


def measurement(case: int, run: str, samples: int) -> Measurement:
    times_s = tuple(1e-4 + 1e-6 * ((7 * i + case) % 13) for i in range(samples))
    return Measurement(
        case=CaseId(f"bench_linalg.py::matmul_{case // 10}", (("n", 2 ** (case % 10)), ("dtype", "f32"))),
        environment=ENVIRONMENT,
        options=DEFAULTS,
        run_id=run,
        started_at="2025-11-21T01:35:00.000000+00:00",
        signature="f32[1024,1024]",
        stages=Stages(trace_s=0.002, lower_s=0.011, compile_s=0.25, first_run_s=0.003, cache="miss", cold="function"),
        samples=(Samples("wall", 1, times_s, disturbed=(False,) * samples, resolution_s=3e-8, stop="precise"),),
    )


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - start) / 1e9


if __name__ == "__main__":
    main()
