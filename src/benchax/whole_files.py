"""Files that are written whole or not at all, and by one process at a time.

A full disk, or a second writer, leaves what was there before.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Generator
from contextlib import AbstractContextManager, contextmanager, suppress
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from pathlib import Path

from benchax.errors import StoreError, UsageError


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
    # Messages of errors may hold halves of surrogate pairs, which UTF-8 cannot.
    data = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
    # A file in the place of a link or of a device would be another file than the one that is asked for.
    file = Path(os.path.realpath(file))
    if file.exists() and not file.is_file():  # /dev/null, /dev/stdout, a pipe
        file.write_bytes(data)
        return
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name[:40]}-", suffix=".part")
    beside = Path(name)
    try:
        os.close(handle)
        beside.write_bytes(data)
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


def write_text(file: Path, text: str) -> None:
    """Writes a file that the user asked for, whole or not at all, and makes its folder. Raises `UsageError` with the
    reason of the operating system."""
    with refuse_unwritable(file):
        with suppress(FileExistsError):  # writing says that it is no folder
            file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, text)


@contextmanager
def refuse_unwritable(file: Path) -> Generator[None, None, None]:
    """Raises `UsageError` with the reason of the operating system if the file cannot be written inside."""
    try:
        yield
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise UsageError(f"cannot write to {str(file)!r}: {why}", "a file that can be written") from error


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


# ---- one writer at a time, for a file that is itself the lock, among all processes of a machine ----------------------
#
# Waiting happens in the kernel: a poll every few milliseconds would disturb what others measure. A process that dies
# gives its lock back. Writers that replace the file (write another one, rename it) are noticed: who waited for the old
# one takes the lock of the new one.


WAIT_S = 60.0
"""How long a writer waits for others."""


@contextmanager
def only_writer(path: Path, where: str = "", is_patient: bool = False) -> Generator[int, None, None]:
    """Opens the file to read and write, makes it if it is not there, and yields its descriptor with the lock held.

    Args:
        where: what is to be written, as an error tells it; default: that file.
        is_patient: waits for as long as it takes.

    Raises:
        StoreError: another process has held the lock for WAIT_S, as when it was stopped by Ctrl-Z.
        OSError: the file cannot be opened to write.
    """
    while True:
        # Programs that this process starts do not inherit it (PEP 446).
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if not _is_taken(descriptor):
                # Lock in a thread, because flock has no timeout, and on a duplicate, because the thread may outlive the
                # wait. The duplicate gets the lock for both. If the wait is over, closing the duplicate releases it at
                # once.
                waiting = threading.Thread(target=_queue, args=(os.dup(descriptor),), daemon=True)
                waiting.start()
                waiting.join(None if is_patient else WAIT_S)
                if not _is_taken(descriptor):
                    raise StoreError(
                        f"cannot write {where or path}: another process has been writing for {WAIT_S:.0f} s",
                        hint=f"it may hang or be stopped; see who has {path} open (lsof, fuser)",
                    )
            # Does the path still lead to this open file?
            if path.exists() and os.path.samestat(os.fstat(descriptor), path.stat()):
                yield descriptor
                return
        finally:
            # Unlock explicitly: a child forked in the meantime also has the file open, so closing it here is not
            # enough.
            flock(descriptor, LOCK_UN)
            os.close(descriptor)


def hold_lock(path: Path) -> AbstractContextManager[int]:
    """Waits until no other process is inside, for as long as that takes. The file is the lock, and stays empty."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return only_writer(path, is_patient=True)


def _is_taken(descriptor: int) -> bool:
    """Takes the lock unless another process has it. True again and again for the one that has it."""
    try:
        flock(descriptor, LOCK_EX | LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _queue(descriptor: int) -> None:
    # A failure here repeats in `_is_taken`, which reports it.
    with suppress(OSError):
        flock(descriptor, LOCK_EX)
    os.close(descriptor)
