"""`benchax import FILE`: results of pytest-benchmark as rows of the store."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def import_file(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSON of pytest-benchmark.")],
    store: Annotated[str | None, typer.Option(help="Folder of the database (default .benchmarks).")] = None,
) -> None:
    """Store the results in a file of pytest-benchmark. Those that are there already are not stored again."""
    from benchax.cli.console import note
    from benchax.cli.listing import open_listed_store
    from benchax.errors import StoreError
    from benchax.store.imports import read_pytest_benchmark

    rows = read_pytest_benchmark(file)
    database = open_listed_store(store)
    try:
        there = {row.case for row in database.rows(run=rows[0].run_id)}
    except StoreError:  # as a rule nothing was ever stored there; what else is wrong, the first row will say
        there = set()
    new = [m for m in rows if m.case not in there]
    with database.held_open():
        for m in new:
            database.append(m)
    known = f", {len(rows) - len(new)} were there already" * (len(new) < len(rows))
    note(f"{len(new)} row{'s' * (len(new) != 1)} stored in {database.where} as run {rows[0].run_id[:12]}{known}")
    if without := sum(not m.samples for m in new):
        note(f"{without} of them without readings: the file holds statistics only")
