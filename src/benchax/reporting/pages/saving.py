"""Writes pages: whole or not at all, so that a full disk leaves the page that was there before."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from benchax.errors import UsageError
from benchax.reporting.document import Document
from benchax.reporting.pages.page import Shared, render_page
from benchax.reporting.tables import one_line
from benchax.whole_files import write_whole

LONGEST_TITLE = 100


def save_page(
    file: str | os.PathLike[str], documents: Sequence[Document], title: str = "", shared: Shared | None = None
) -> None:
    """Writes one page.

    Args:
        title: title of the window; if empty, the title of the first document.

    Raises:
        UsageError: the file cannot be written; an existing file is unchanged.
    """
    named = one_line(title or (documents[0].title if documents else "")) or "benchax"
    write_page(Path(file), render_page(named[:LONGEST_TITLE], documents, shared))


def write_page(file: Path, text: str) -> None:
    """Writes a file whole or not at all.

    Raises:
        UsageError: with the reason of the operating system.
    """
    try:
        write_whole(file, text)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot write to {str(file)!r}: {why}", "a file that can be written") from error
