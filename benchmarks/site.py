"""What a site of a long history takes: time and CPU time of all its processes, sizes of pages, and what a second time
and one more commit take.

    python benchmarks/site.py                                   1,000 cases × 1,000 commits: 6 GB of disk, 6 minutes
    python benchmarks/site.py --cases 100 --commits 100         a first impression

Rows are put in by bulk inserts, commit by commit, as CI leaves them; each commit's comparisons with a pinned baseline
follow its rows. Three stores: rows alone, comparisons alone, both.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import resource
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from store import ENVIRONMENT, columns, measurement

from benchax.codec import encode
from benchax.environment import count_cores
from benchax.model import Block, CaseId, Comparison, Version
from benchax.reporting.site.publishing import publish
from benchax.store.database import open_store
from benchax.store.schema import Connection, case_columns, migrate

PAIRS, BLOCKS = 20, 4
CHUNK = 100
"""Commits in a transaction: each waits for the disk."""
NOISE = 0.015
LIMIT_S, LIMIT_BYTES = 60, 500_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1_000, help="(1000)")
    parser.add_argument("--commits", type=int, default=1_000, help="(1000)")
    parser.add_argument("--kinds", nargs="*", default=["rows", "comparisons", "both"], help="(rows comparisons both)")
    parser.add_argument("--folder", type=Path, help="where the files are made and removed again")
    options = parser.parse_args()
    cores = f"{count_cores()} cores, load {os.getloadavg()[0]:.1f}"
    print(f"SQLite {sqlite3.sqlite_version}, {cores}, {options.cases} cases × {options.commits} commits")
    widths = {
        "store": 12,
        "MB": 7,
        "first s": 9,
        "CPU s": 7,
        "again s": 9,
        "one commit s": 14,
        "CPU s ": 7,
        "site MB": 8,
        "kB a page": 10,
        "most": 6,
    }
    print("".join(f"{name:>{width}}" for name, width in widths.items()), flush=True)
    for kind in options.kinds:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            report(kind, Path(folder), options.cases, options.commits)


def report(kind: str, folder: Path, number: int, commits: int) -> None:
    store = open_store(folder / "store")
    store.place.write(lambda c: migrate(c, "the history"))
    rng = random.Random(0)
    listed = [CaseId(f"benchmark_{i:04}", (("n", 2 ** (i % 12)),)) for i in range(number)]
    store.place.write(lambda c: c.insert("cases", [case_columns(case) | {"id": i} for i, case in enumerate(listed, 1)]))
    templates = [template(case) for case in listed]
    for start in range(0, commits, CHUNK):
        chunk = range(start, min(start + CHUNK, commits))
        store.place.write(lambda c, chunk=chunk: [fill(c, kind, n, templates, rng) for n in chunk])
    first, first_cpu = take_time(lambda: publish(store, folder / "site"))
    again, _ = take_time(lambda: publish(store, folder / "site"))
    store.place.write(lambda c: fill(c, kind, commits, templates, rng))
    one_more, one_more_cpu = take_time(lambda: publish(store, folder / "site"))
    sizes = [file.stat().st_size for file in (folder / "site").rglob("*") if file.is_file()]
    pages = [file.stat().st_size for file in (folder / "site").rglob("*.html")]
    size_mb = sum(file.stat().st_size for file in (folder / "store").iterdir()) / 1e6
    print(
        f"{kind:>12}{size_mb:>7.0f}{first:>9.1f}{first_cpu:>7.1f}{again:>9.2f}{one_more:>14.1f}{one_more_cpu:>7.1f}"
        f"{sum(sizes) / 1e6:>8.0f}"
        f"{sum(pages) / len(pages) / 1e3:>10.0f}{max(pages) / 1e3:>6.0f}",
        flush=True,
    )
    if first > LIMIT_S or max(pages) > LIMIT_BYTES:
        print(f"             beyond {LIMIT_S} s, or {LIMIT_BYTES // 1000} kB a page")


def take_time(work: Callable[[], object]) -> tuple[float, float]:
    """(seconds, CPU seconds of this process and those that it has waited for)"""
    start, cpu = time.perf_counter(), cpu_s()
    work()
    return time.perf_counter() - start, cpu_s() - cpu


def cpu_s() -> float:
    found = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in found)


def template(case: CaseId) -> tuple[dict[str, Any], str]:
    """The columns of a row, and a comparison as the texts between ratio, its ends, value, commit (twice) and date."""
    m = replace(measurement(0, run="history", samples=50), case=case)
    # The site reads no readings, so the store has none.
    row = columns(m) | {"document": encode(replace(m, samples=()))}
    block = Block(0, tuple(1e-4 + 1e-9 * i for i in range(PAIRS)), tuple(1.01e-4 + 1e-9 * i for i in range(PAIRS)))
    made = Comparison(
        case, "run", Version("v1.2", "a" * 40, False, "0.10.2", "f" * 64), Version("now", COMMIT, False, "0.10.2"),
        "same", "within 5 %", ratio=1.234567, low=1.134567, high=1.334567, smallest_effect=0.02, baseline_value=1e-4,
        candidate_value=1.534567e-4, blocks=(block,) * BLOCKS, environment=replace(ENVIRONMENT, commit=COMMIT),
        compared_at=DATE,
    )  # fmt: skip
    text = encode(made)
    return row, text


COMMIT, DATE = "c" * 40, "2026-01-01T03:15:00.000000+00:00"


def fill(connection: Connection, kind: str, commit: int, templates: list[Any], rng: random.Random) -> None:
    sha = hashlib.sha1(str(commit).encode()).hexdigest()
    day = time.strftime("%Y-%m-%dT03:15:00.000000+00:00", time.gmtime(1_600_000_000 + 86_400 * commit))
    levels = [ratio_of(case, commit) * rng.lognormvariate(0, NOISE) for case in range(len(templates))]
    if kind != "comparisons":
        connection.insert("measurements", list(rows_of(templates, levels, sha, day)))
    if kind != "rows":
        texts = [compare(text, level, sha, day) for (_, text), level in zip(templates, levels, strict=True)]
        values = {"metric": "run", "baseline": "v1.2"}
        connection.insert("comparisons", [values | {"case_id": i, "document": t} for i, t in enumerate(texts, 1)])


def ratio_of(case: int, commit: int) -> float:
    """One case in ten changes by 10 %, once in 300 commits."""
    return 1.1 ** (commit // 300) if case % 10 == 0 else 1.0


def rows_of(templates: list[Any], levels: list[float], sha: str, day: str) -> Iterator[dict[str, Any]]:
    for i, ((row, _), level) in enumerate(zip(templates, levels, strict=True), 1):
        times = {"median_s": 1e-4 * level, "low_s": 0.99e-4 * level, "high_s": 1.01e-4 * level}
        yield row | times | {"case_id": i, "run_id": sha[:12], "started_at": day, "commit": sha, "is_dirty": False}


def compare(text: str, level: float, sha: str, day: str) -> str:
    for old, new in (("1.234567", level), ("1.134567", 0.99 * level), ("1.334567", 1.01 * level)):
        text = text.replace(old, json.dumps(new), 1)
    return text.replace("0.0001534567", json.dumps(1e-4 * level), 1).replace(COMMIT, sha).replace(DATE, day)


if __name__ == "__main__":
    main()
