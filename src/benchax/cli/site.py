"""`benchax site`: writes the history in a store as pages. You can open them from disk or put them on any server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from benchax.cli.console import note
from benchax.cli.options import Store
from benchax.units import plural

if TYPE_CHECKING:
    from benchax.reporting.site.publishing import Published

DEFAULT = Path("site")


def site(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="Write the site to this folder.")
    ] = DEFAULT,
    store: Store = None,
) -> None:
    """Write a site of the history: recent changes, a page for each case, and any two commits side by side.

    The next time, it writes only pages whose rows have changed.
    """
    from benchax.cli.store import open_listed_store
    from benchax.reporting.site.publishing import publish

    note(_describe(publish(open_listed_store(store), output)))


def _describe(done: Published) -> str:
    pages = f"{done.written} of {plural(done.cases, 'page')} of cases written"
    versions = f"{done.versions_written} of {plural(done.versions, 'version')}"
    return f"{done.folder / 'index.html'}: {pages}, {versions}, {plural(done.others, 'other file')}"
