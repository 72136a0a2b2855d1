"""Files that are written whole or not at all: a full disk, or a second writer, leaves what was there before."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def write_whole(file: Path, content: str | bytes, *, is_durable: bool = False) -> None:
    """Writes into a second file in the same folder first, which then replaces `file`.

    Args:
        is_durable: waits for the disk, so that a power cut leaves one of both.

    Raises:
        OSError: it cannot be written; the old content is unchanged.
        ValueError: its name has a zero byte.
    """
    if file.is_dir():
        raise IsADirectoryError(None, "it is a folder")
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:40]}-", suffix=".part")
    beside = Path(name)
    try:
        # Messages of errors may hold halves of surrogate pairs, which UTF-8 cannot.
        os.close(handle)
        beside.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace"))
        if is_durable:
            _sync(beside)
        beside.chmod(_mode_of(file))
        beside.replace(file)
        if is_durable:
            _sync(file.parent)  # which holds the name
    except BaseException:
        with suppress(OSError):
            beside.unlink()
        raise


def _sync(path: Path) -> None:
    """Waits until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def hide_from_git(folder: Path, names: str = "*") -> None:
    """Writes a .gitignore with `names`, a pattern a line, unless `folder` has one. Git does not see the file if `names`
    is "*".

    Raises:
        OSError: it cannot be written.
    """
    if not (folder / ".gitignore").exists():
        write_whole(folder / ".gitignore", f"{names}\n")


def _mode_of(file: Path) -> int:
    """The mode of the replaced file, else the mode of new files here: temporary files are for their owner only."""
    with suppress(OSError):
        return file.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
