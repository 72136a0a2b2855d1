"""Reads results that are not rows: files that `--output` and `--json` of experiments, audits and checklists wrote.

Such a file has one document per line. This module reads it only if nothing gets lost: it writes each document again,
and the two must be equal.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchax.codec import VERSION_KEY
from benchax.errors import FormatError, StoreError

if TYPE_CHECKING:
    from benchax.results.audit import Audit, Checklist
    from benchax.results.experiment import Experiment

    Result = Experiment | Audit | Checklist

SHOWN = 60
"""An error quotes this many characters of an unreadable line."""
READABLE = "a file that this benchax wrote: rows (run --json), experiments, audits or checklists (--json, --output)"


def read_results(file: Path) -> list[Result] | None:
    """Reads a file of results. Returns None if it holds something else, usually rows, which have separate readers.

    Raises:
        FormatError: the file holds results, but benchax could not show all of them.
        StoreError: benchax cannot read the file.
    """
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise StoreError(f"cannot read {str(file)!r}: {why}", READABLE) from error
    first = next((line for line in lines if line.strip()), "")
    document = _parse(first)
    if _kind_of(document) is None:
        if isinstance(document, dict) and VERSION_KEY not in document:
            raise FormatError(f"{str(file)!r} holds nothing that can be shown, such as {first[:SHOWN]!r}", READABLE)
        return None
    return [_read(file, number, line) for number, line in enumerate(lines, 1) if line.strip()]


def _parse(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _kind_of(document: Any) -> type[Result] | None:
    """Finds the kind of a result by the keys that only this kind has."""
    from benchax.results.audit import Audit, Checklist
    from benchax.results.experiment import Experiment

    keys = document.keys() if isinstance(document, dict) else ()
    kinds: dict[str, type[Result]] = {"baseline": Experiment, "checked": Audit, "ticks": Checklist}
    return next((kind for key, kind in kinds.items() if {key, "name", "signature"} <= set(keys)), None)


def _read(file: Path, number: int, line: str) -> Result:
    from benchax.json_values import Mismatch, converter

    document = _parse(line)
    kind = _kind_of(document)
    where = f"line {number} of {str(file)!r}"
    if kind is None:
        raise FormatError(f"{where} is no experiment, audit or checklist, as the first one is", READABLE)
    try:
        found: Result = converter(kind).decode(document)
    except Mismatch as mismatch:
        raise FormatError(f"{where} cannot be read back: {mismatch}", mismatch.expected) from mismatch
    if json.loads(json.dumps(found.asdict(), default=str)) != document:
        raise FormatError(f"{where} was written by another version, and something of it would be lost", READABLE)
    return found
