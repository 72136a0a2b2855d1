"""The rates of machines that were measured before, one file for each fingerprint in the user's cache folder.

`machine/peaks.py` measures them; whoever reads a recording only looks them up, and needs neither JAX nor the machine.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import platformdirs

from benchax.model import Absent
from benchax.results.roofline import Peaks
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
        if document.pop("format") != FORMAT:
            return None
        document["absent"] = tuple(Absent(**each) for each in document["absent"])
        found = Peaks(**document, path=str(path))
    # Damaged, or of another benchax. Harmless: it is measured anew.
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
    return found if _is_sound(found) else None


def _is_sound(found: Peaks) -> bool:
    rates = [found.memory_bytes_per_s, found.cache_bytes_per_s]
    matmuls: Any = found.matmul_flops_per_s
    if not isinstance(matmuls, dict):
        return False
    return all(rate is None or (isinstance(rate, float) and rate > 0) for rate in [*rates, *matmuls.values()])


def keep_peaks(path: Path, found: Peaks) -> bool:
    """Written whole or not at all. False where it cannot be kept; then the next run measures again."""
    document = {"format": FORMAT} | dataclasses.asdict(found)
    del document["path"]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(document))
    except OSError:
        return False
    return True
