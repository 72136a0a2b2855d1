"""`benchax list`: the rows of the store, newest last."""

from __future__ import annotations

from typing import Annotated

import typer


def list_rows(
    pattern: Annotated[str, typer.Option("--filter", "-k", help="Only cases of this name (or matching, with * ?).")] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many, the newest.")] = 30,
    store: Annotated[str | None, typer.Option(help="Folder of the database (default .benchmarks).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Whole rows as JSON, one per line.")] = False,
) -> None:
    """List stored rows; `benchax show ID` shows one."""
    from benchax.cli.console import print_json, stdout
    from benchax.options import resolve
    from benchax.reporting import terminal
    from benchax.reporting.tables import stored
    from benchax.store.database import open_store

    database = open_store(resolve(command_line={"store": store}).store)
    if as_json:
        print_json(database.query(case=pattern or None, limit=limit))
    else:
        stdout().print(terminal.grid(stored(database.rows(case=pattern or None, limit=limit))))
