"""Writes pages: whole or not at all, so that a full disk leaves the page that was there before."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from benchax.errors import UsageError
from benchax.reporting.document import Document
from benchax.reporting.pages.page import Shared, render_page
from benchax.reporting.tables import one_line

LONGEST_TITLE = 100


def save_page(
    file: str | os.PathLike[str], documents: Sequence[Document], title: str = "", shared: Shared | None = None
) -> None:
    """Writes one page.

    Args:
        title: of the window; empty: that of the first document.

    Raises:
        UsageError: there can be no such file; what was there before is unchanged.
    """
    named = one_line(title or (documents[0].title if documents else "")) or "benchax"
    write_whole(Path(file), render_page(named[:LONGEST_TITLE], documents, shared))


def write_whole(file: Path, text: str) -> None:
    """Into a file beside it first, which then takes its place.

    Raises:
        UsageError: with the reason of the operating system.
    """
    try:
        if file.is_dir():
            raise IsADirectoryError(None, "it is a folder")
        handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:40]}-", suffix=".part")
        beside = Path(name)
        try:
            # Messages of errors may hold halves of surrogate pairs, which UTF-8 cannot.
            os.close(handle)
            beside.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
            beside.chmod(_mode_of(file))
            beside.replace(file)
        except BaseException:
            with suppress(OSError):
                beside.unlink()
            raise
    except (OSError, ValueError) as error:  # ValueError: a zero byte in its name
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot write to {str(file)!r}: {why}", "a file that can be written") from error


def _mode_of(file: Path) -> int:
    """That of the file that is replaced, else what a new file has here: temporary files are for their owner only."""
    with suppress(OSError):
        return file.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
