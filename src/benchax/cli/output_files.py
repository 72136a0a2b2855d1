"""Checks and writes the files of all commands. The check comes before an hour of measuring, not after it."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from benchax.cli.console import note
from benchax.errors import UsageError, require

if TYPE_CHECKING:
    from benchax.reporting.document import Document

DRAWN = (".png", ".svg", ".pdf")


def check_writable(*paths: Path | None) -> None:
    """Raises `UsageError` if a file cannot have that name."""
    for path in paths:
        if path is not None and not _can_be(path):
            raise UsageError(f"cannot write to {str(path)!r}", "a file in a folder that exists")


def check_drawable(plot: Path | None) -> None:
    """Checks the file of a figure like `check_writable`. Also raises `MissingPackage` without matplotlib."""
    if plot is None:
        return
    if plot.suffix not in DRAWN or not _can_be(plot):
        raise UsageError(f"cannot draw to {str(plot)!r}", "a file in a folder that exists: .png, .svg or .pdf")
    require("matplotlib", doing="--plot")


def _can_be(path: Path) -> bool:
    return path.absolute().parent.is_dir() and not path.is_dir()


def write_text(file: Path, text: str) -> None:
    """Writes the file, and makes its folder. Raises `UsageError` with the reason of the operating system."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # Messages of errors may hold halves of surrogate pairs, which UTF-8 cannot. Line breaks stay as they are.
        file.write_text(text, encoding="utf-8", errors="backslashreplace", newline="")
    except OSError as error:
        raise _refuse(file, error) from error


def write_figure(plot: Path, figure: Any) -> None:
    """Saves matplotlib's figure. Raises `UsageError` with the reason of the operating system."""
    try:
        figure.savefig(plot)
    except OSError as error:
        raise _refuse(plot, error) from error


class BecomesPage(Protocol):
    """A result of any kind that can write itself as a page."""

    def to_html(self, file: str | os.PathLike[str]) -> None: ...


def write_page(file: Path | None, result: BecomesPage) -> None:
    """Writes the page if there is a file for it. Raises `UsageError` with the reason of the operating system."""
    if file is not None:
        # Teaches results to write pages, as the import of a public name does, which commands do without.
        importlib.import_module("benchax.reporting.display")
        result.to_html(file)
        note(f"page written to {file}")


def write_documents(file: Path | None, documents: Sequence[Document]) -> None:
    """Writes documents as `write_page` does. The first document is the head of the page, and its parts follow."""
    from benchax.reporting.pages.page import save_page

    if file is not None:
        save_page(file, documents)
        note(f"page written to {file}")


def _refuse(file: Path, error: OSError) -> UsageError:
    return UsageError(f"cannot write to {str(file)!r}: {error.strerror or error}", "a file that can be written")
