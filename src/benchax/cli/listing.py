"""`benchax list`: the rows of the store, newest last."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from benchax.errors import UsageError

if TYPE_CHECKING:
    from benchax.store.database import DatabaseStore


def list_rows(
    pattern: Annotated[
        str, typer.Option("--filter", "-k", help="Only cases of this name (or matching, with * ?).")
    ] = "",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10**9, help="At most so many, the newest.")] = 30,
    store: Annotated[str | None, typer.Option(help="Folder of the database (default .benchmarks).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Whole rows as JSON, one per line.")] = False,
) -> None:
    """List stored rows; `benchax show ID` shows one."""
    from benchax.cli.console import note, print_json, show
    from benchax.reporting.document import Document
    from benchax.reporting.tables import stored_grid

    database = open_listed_store(store)
    if as_json:
        print_json(database.query(case=pattern or None, limit=limit))
    elif rows := database.rows(case=pattern or None, limit=limit):
        show(Document((stored_grid(rows),)))
    else:
        note(f"no row in {database.where} is of a case {pattern!r}")


def open_listed_store(store: str | None) -> DatabaseStore:
    """The store that --store, or else the options, name."""
    from benchax.options import resolve
    from benchax.store.database import open_store

    where = resolve(command_line={"store": store}).store
    if where in (None, "off"):
        raise UsageError("there are no rows: storing is switched off here", "a folder", "name it with --store")
    return open_store(where)
