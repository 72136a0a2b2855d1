"""Which modules a worker has imported for its jobs, and whether their files have changed since.

A worker that is used again would otherwise measure the code of yesterday: whoever edits a file and measures again
expects the new one.
"""

from __future__ import annotations

import sys
from pathlib import Path


class ImportedModules:
    def __init__(self) -> None:
        self.known = set(sys.modules)
        self.stamps: dict[str, tuple[int, int] | None] = {}

    def look(self) -> None:
        """Notes the files of the modules that came since the last look."""
        new = [name for name in list(sys.modules) if name not in self.known]
        self.known.update(new)
        paths = [path for name in new if (path := getattr(sys.modules.get(name), "__file__", None))]
        self.stamps |= {path: _stamp(path) for path in paths if path not in self.stamps}

    def changed(self) -> str:
        """The file of a module that is not what it was when it was noted; empty if all are."""
        return next((path for path, stamp in self.stamps.items() if _stamp(path) != stamp), "")


def _stamp(path: str) -> tuple[int, int] | None:
    """The size too: times of files move in steps of some milliseconds."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
