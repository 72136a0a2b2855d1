"""Files that are written whole or not at all: a full disk, or a second writer, leaves what was there before."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_whole(file: Path, text: str) -> None:
    """Into a file beside it first, which then takes its place.

    Raises:
        OSError: it cannot be written; what was there is unchanged.
        ValueError: there is a zero byte in its name.
    """
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


def _mode_of(file: Path) -> int:
    """That of the file that is replaced, else what a new file has here: temporary files are for their owner only."""
    with suppress(OSError):
        return file.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
