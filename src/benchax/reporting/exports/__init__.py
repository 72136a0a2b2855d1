"""Stored results in the formats of other tools. A new one is one function in `formats.py` and one line in FORMATS.

The page docs/how-to/exports.md lists for each format the fields that it fills, and the reader that read it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from benchax.errors import UsageError, one_of
from benchax.reporting.exports import formats, pytest_benchmark
from benchax.reporting.exports.entries import ExportedCase

FORMATS: dict[str, Callable[[Sequence[ExportedCase]], str]] = {
    "bencher": formats.to_bencher,
    "csv": formats.to_csv,
    "github-action": formats.to_github_action,
    "google-benchmark": formats.to_google_benchmark,
    "json": formats.to_json,
    "junit": formats.to_junit,
    "markdown": formats.to_markdown,
    "pytest-benchmark": pytest_benchmark.text,
}
ASV = "asv"
"""The one that is a folder of files (`asv.py`)."""
NAMES = (*FORMATS, ASV)


def check_format(name: str) -> None:
    """Raises `UsageError` for a format that does not exist."""
    if name not in NAMES:
        raise UsageError(f"unknown format {name!r}", one_of(NAMES, name))
