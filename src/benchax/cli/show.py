"""`benchax show`: one stored row in full."""

from __future__ import annotations

from typing import Annotated

import typer

from benchax.errors import UsageError


def show(
    row: Annotated[str, typer.Argument(metavar="ID", help="As `benchax list` shows it, or: last.")] = "last",
    store: Annotated[str | None, typer.Option(help="Folder of the database (default .benchmarks).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The whole row as JSON.")] = False,
    samples: Annotated[
        bool, typer.Option("--samples", help="Every reading, in seconds per call: timer, tab, value.")
    ] = False,
) -> None:
    """Show one stored row: every stage, timer, remark, or the raw samples."""
    from benchax.cli import console
    from benchax.cli.listing import open_listed_store
    from benchax.reporting.measurement import document

    database = open_listed_store(store)
    if row != "last" and not (row.isdecimal() and len(row) < 19):  # longer ones are beyond 64 bits
        raise UsageError(f"{row!r} is not the id of a row", "a number as `benchax list` shows it, or: last")
    measurement = database.get(int(row)) if row != "last" else database.query(limit=1)[-1]
    if as_json:
        console.print_json([measurement])
    elif samples:
        for series in measurement.samples:
            for value in series.per_call_s:
                console.line(f"{series.timer}\t{value!r}")
    else:
        console.show(document(measurement, is_full=True))
