"""Stored results in the formats of other tools. A new one is one file here and one line in FORMATS.

Each format is a pure function of entries (`entries.py`). It omits a value that the format cannot express, and never
makes one up. The page docs/how-to/exports.md lists for each format the fields that it fills, and the reader that read
it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchax.errors import UsageError, one_of
from benchax.reporting.exports import (
    bencher,
    csv_table,
    documents,
    github_action,
    google_benchmark,
    junit,
    markdown,
    pytest_benchmark,
)
from benchax.reporting.exports.entries import ExportedCase

FORMATS: dict[str, Callable[[Sequence[ExportedCase]], str]] = {
    "bencher": bencher.text,
    "csv": csv_table.text,
    "github-action": github_action.text,
    "google-benchmark": google_benchmark.text,
    "json": documents.text,
    "junit": junit.text,
    "markdown": markdown.text,
    "pytest-benchmark": pytest_benchmark.text,
}
ASV = "asv"
"""The one that is a folder of files (`asv.py`)."""
NAMES = (*FORMATS, ASV)


def check_format(name: str) -> None:
    """Raises `UsageError` for a format that does not exist."""
    if name not in NAMES:
        raise UsageError(f"unknown format {name!r}", one_of(NAMES, name))
