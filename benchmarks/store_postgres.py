"""A history of ten million rows, on a PostgreSQL server or in SQLite: the newest of each case, a run, an append.

    python benchmarks/store_postgres.py postgresql://me@localhost/benchmark       10^7 rows of 10^4 cases: minutes, 8 GB
    python benchmarks/store_postgres.py FOLDER                                    the same in SQLite
    python benchmarks/store_postgres.py URL --rows 100000 --cases 1000            a first impression
    python benchmarks/store_postgres.py URL --filled                              of what an earlier call has made

Makes the tables of benchax in an empty database, and leaves them there. Rows are interleaved as runs would leave them
(each run has all cases once) and made in the database, with documents of 300 bytes; real ones have 2 to 5 kB, which the
databases keep apart from what these questions read.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import statistics
import time
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import psycopg
from store import measurement

from benchax.store.baselines import list_runs
from benchax.store.database import open_store

NUMBERS = """
WITH RECURSIVE numbers(i) AS (SELECT CAST(:first AS bigint) UNION ALL SELECT i + 1 FROM numbers WHERE i < :last)
"""
FILL = """
INSERT INTO measurements (case_id, run_id, started_at, status, "commit", is_dirty, host, fingerprint, backend,
    device_kind, jax, timer, iterations, n, median_s, low_s, high_s, compile_s, document)
SELECT 1 + i % :cases, md5(CAST(i / :cases AS text)), '2026-01-01T00:00:00.000000+00:00', 'ok',
    md5('c' || (i / :cases / 10)) || '00000000', false, 'node-' || i % 17,
    substr(md5(CAST(i % 17 AS text)), 1, 12), 'cpu',
    'cpu', '0.10.2', 'wall', 1, 50, 1e-4 + (i % 13) * 1e-6, 1e-4, 1.2e-4, 0.25, :document
FROM numbers
"""
CASES = """
INSERT INTO cases (key, name, params, variant, tag)
SELECT md5(CAST(i AS text)) || md5(CAST(i AS text)), 'bench_' || i / 10, '[["n",' || (1 << CAST(i % 10 AS int)) || ']]',
    '', ''
FROM numbers
"""
CHUNK = 1_000_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("where", help="URL of an empty database, or a folder for one of SQLite")
    parser.add_argument("--rows", type=int, default=10_000_000, help="(10000000)")
    parser.add_argument("--cases", type=int, default=10_000, help="(10000)")
    parser.add_argument("--filled", action="store_true", help="measure what is there")
    given = parser.parse_args()
    store = open_store(given.where)
    if not given.filled:
        begun = time.perf_counter()
        fill(store, given.rows, given.cases)
        print(f"{given.rows} rows of {given.cases} cases in {time.perf_counter() - begun:.0f} s")
    run = store.rows(limit=1)[0].run_id
    report("the 30 newest rows", lambda: store.rows(limit=30))
    report("a run of all cases", lambda: store.rows(run=run))
    report("one case, 100 newest", lambda: store.rows(case="bench_7", limit=100))
    report("the 30 newest runs", lambda: list_runs(store, 30), times=3)
    report("an append", lambda: store.append(measurement(1, "new", 50)), times=200)
    with store.held_open():
        report("an append, held open", lambda: store.append(measurement(1, "new", 50)), times=200)


def fill(store: Any, rows: int, cases: int) -> None:
    store.write(lambda c: insert(c, CASES, {"first": 1, "last": cases}))
    document = "{" + "x" * 298 + "}"
    for first in range(0, rows, CHUNK):
        values = {"cases": cases, "first": first, "last": min(rows, first + CHUNK) - 1, "document": document}
        store.write(lambda c, values=values: insert(c, FILL, values))
    if "://" in store.where:
        # As the server does by itself some time after so many rows.
        with psycopg.connect(store.place.url, autocommit=True) as connection:
            connection.execute("VACUUM ANALYZE measurements")


def insert(connection: Any, statement: str, values: dict[str, Any]) -> None:
    head, _, rest = statement.partition("SELECT")
    statement = f"{head}{NUMBERS}SELECT{rest}"
    if connection.dialect == "sqlite":
        digest = lru_cache(lambda value: hashlib.md5(value.encode(), usedforsecurity=False).hexdigest())
        connection.driver.create_function("md5", 1, digest, deterministic=True)
        connection.driver.execute(statement, values)
    else:
        connection.driver.execute(re.sub(r"(?<!:):(\w+)", r"%(\1)s", statement.replace("%", "%%")), values)


def report(what: str, call: Callable[[], Any], times: int = 9) -> None:
    spent, here = [], time.process_time()
    for _ in range(times):
        begun = time.perf_counter()
        call()
        spent.append(1e3 * (time.perf_counter() - begun))
    here_ms = 1e3 * (time.process_time() - here) / times
    middle = statistics.median(spent)
    print(
        f"{what:<24} median {middle:8.1f} ms, {min(spent):.1f} to {max(spent):.1f}; CPU here {here_ms:.1f}", flush=True
    )


if __name__ == "__main__":
    main()
