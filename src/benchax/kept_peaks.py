"""The rates of machines that were measured before, one file for each fingerprint in the user's cache folder.

`machine/peaks.py` measures them; whoever reads a recording only looks them up, and needs neither JAX nor the machine.
"""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import platformdirs

from benchax.errors import FormatError
from benchax.json_values import decode_value
from benchax.results.inspection import Peaks
from benchax.whole_files import write_whole

FORMAT = 1


def kept_peaks(fingerprint: str) -> Peaks | None:
    """Returns the rates kept for an environment with this fingerprint; None if no rates are kept. Measures nothing."""
    return read_peaks(file_of(fingerprint))


def file_of(fingerprint: str, folder: Path | None = None) -> Path:
    """Where they are kept, if they are."""
    return (folder or Path(platformdirs.user_cache_dir("benchax")) / "peaks") / f"{fingerprint}.json"


def read_peaks(path: Path) -> Peaks | None:
    """None if the file does not exist or cannot be read."""
    try:
        document: Any = json.loads(path.read_bytes())
        if document["format"] != FORMAT:
            return None
        found = decode_value(document, Peaks)
    # The file is damaged, or from another version of benchax. Harmless: measure again.
    except (OSError, ValueError, TypeError, KeyError, FormatError):
        return None
    rates = [found.memory_bytes_per_s, found.cache_bytes_per_s, *found.matmul_flops_per_s.values()]
    return replace(found, path=str(path)) if all(rate is None or rate > 0 for rate in rates) else None


def keep_peaks(path: Path, found: Peaks) -> bool:
    """Written whole or not at all. False where it cannot be kept; then the next run measures again."""
    document = {"format": FORMAT} | asdict(found)
    del document["path"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(document))
    except OSError:
        return False
    return True
