"""`benchax site`: the history in a store as pages for everybody, opened from disk or put on any server."""

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
    output: Annotated[Path, typer.Option("--output", "-o", metavar="DIR", help="Folder of the site.")] = DEFAULT,
    store: Store = None,
) -> None:
    """Write a site of the history: what got slower or faster lately, a page per case, any two commits side by side.

    A second time writes only pages whose rows have changed.
    """
    from benchax.cli.store import open_listed_store
    from benchax.reporting.site.publishing import publish

    note(_describe(publish(open_listed_store(store), output)))


def _describe(done: Published) -> str:
    pages = f"{done.written} of {plural(done.cases, 'page')} of cases written"
    versions = f"{done.versions_written} of {plural(done.versions, 'version')}"
    return f"{done.folder / 'index.html'}: {pages}, {versions}, {plural(done.others, 'other file')}"
