"""`benchax report`: writes stored results as one self-contained page that you can send."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchax.cli.console import note
from benchax.cli.options import Pattern, Store
from benchax.cli.output_files import check_writable
from benchax.errors import UsageError
from benchax.units import size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchax.model import Measurement
    from benchax.reporting.document import Document
    from benchax.results.profile import Profile
    from benchax.store.database import DatabaseStore
    from benchax.store.load import Rows

DEFAULT = Path("report.html")


def report(
    what: Annotated[
        str,
        typer.Argument(
            metavar="[WHAT]",
            help="A run, a baseline's name, a commit, or: last, last~1. Or a file: .jsonl with rows; JSON of an "
            "experiment, an audit or a checklist; the trace of a profile.",
        ),
    ] = "last",
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Write to FILE.")] = DEFAULT,
    pattern: Pattern = "",
    store: Store = None,
) -> None:
    """Write stored results as a page: all numbers and interactive charts in one file, to send or to keep."""
    from benchax.reporting.pages.page import save_page

    check_writable(output)
    save_page(output, _documents(what, pattern, store))
    note(f"{output}: {size(output.stat().st_size)}")


def _documents(what: str, pattern: str, store: str | None) -> tuple[Document, ...]:
    """Returns the documents of a file or folder, if one has that name. Otherwise returns those of stored rows."""
    from benchax.cli.store import open_listed_store
    from benchax.reporting.display import documents_of
    from benchax.store.baselines import rows_of

    path = Path(what)
    if path.suffix in (".json", ".jsonl") or (os.sep in what and path.exists()) or path.suffix == ".pb":
        return _of_file(path, pattern)
    database = open_listed_store(store)
    rows = _choose(rows_of(database, what), what, pattern)
    head, *parts = documents_of(rows)
    return (head, *_compared(database, rows), *parts)


def _of_file(path: Path, pattern: str) -> tuple[Document, ...]:
    from benchax.cli.result_files import read_results
    from benchax.reporting.display import documents_of
    from benchax.reporting.document import list_parts

    results = read_results(path) if path.suffix in (".json", ".jsonl") and path.is_file() else None
    if results is None:
        return documents_of(_read(path, pattern))
    if pattern:
        raise UsageError(f"--filter {pattern!r} of {str(path)!r}, which holds no rows", "--filter of rows only")
    parts = [part for found in results for part in documents_of(found)]
    return list_parts(f"{len(results)} results of {path.name}", parts)


def _read(path: Path, pattern: str) -> Rows | Profile:
    """Reads measurements that --json wrote, or a trace."""
    from benchax.cli.profile_output import read
    from benchax.store.load import load

    if path.suffix in (".json", ".jsonl"):
        return _choose(load(path), str(path), pattern)
    return read(path)


def _choose(rows: Sequence[Measurement], what: str, pattern: str) -> Rows:
    from benchax.discovery import matches
    from benchax.store.load import Rows

    chosen = tuple(m for m in rows if not pattern or matches(m.case, pattern))
    if rows and not chosen:
        raise UsageError(f"no case of {what!r} is called {pattern!r}", "a part of a name, or a pattern with * or ?")
    return Rows(chosen)


def _compared(store: DatabaseStore, rows: Rows) -> list[Document]:
    """Returns the stored comparisons of these cases at their commits."""
    from benchax.cli.export import find_comparisons
    from benchax.comparing.ranking import Comparisons
    from benchax.reporting.display import documents_of

    found = find_comparisons(store, rows)
    return list(documents_of(Comparisons(tuple(found)))) if found else []
