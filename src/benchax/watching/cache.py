"""Watches JAX's persistent compilation cache: whether it is on, and the programs read, written, or too quick to keep.

JAX sends an event for a program that it reads and one for a program that it hands over to be written. It sends no event
for a program that it does not keep. This module detects such a program: there is no cache event between one compile
event and the next of a thread. A program counts as too quick when its compile event was below the threshold. That event
includes a little more than the time that JAX compares, so a program just above the threshold can be reported as "not
kept".
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from benchax.results.cache import CachedProgram, CacheUse, Fate, Folder
from benchax.watching.compiles import HIT, KINDS, MISS, Listening


@contextlib.contextmanager
def watch_cache() -> Iterator[CacheUse]:
    """Yields what the persistent cache does inside the block, in all threads; complete when the block has ended.

    Costs nothing on a warm call, as JAX sends no events there.

    Example:
        >>> with benchax.watch_cache() as found:
        ...     _ = jax.jit(lambda x: x + 1)(np.ones(3))
        >>> len(found.programs)
        1
    """
    found = CacheUse(before=_folder(_directory()))
    seen: dict[int, Fate] = {}

    # An exception in a listener would surface in the user's own call, so these do nothing that can raise.
    def on_event(event: str, **_: object) -> None:
        if event in (HIT, MISS):
            seen[threading.get_ident()] = "hit" if event == HIT else "written"

    def on_duration(event: str, duration_secs: float, **details: object) -> None:
        if KINDS.get(event) == "compile":
            name = details.get("fun_name")
            # Hits and writes are told before the compile event of the same thread, without a name.
            fate = seen.pop(threading.get_ident(), None) or _unkept(duration_secs)
            found.programs.append(CachedProgram(name if isinstance(name, str) else None, fate, duration_secs))

    listening = Listening(on_event, on_duration)
    try:
        with listening:
            yield found
    finally:
        found.is_reliable = listening.is_complete
        _complete(found)


def _unkept(elapsed_s: float) -> Fate:
    is_off = _why_off() is not None
    return (
        "too quick" if not is_off and elapsed_s < _setting("jax_persistent_cache_min_compile_time_secs") else "not kept"
    )


def _complete(found: CacheUse) -> None:
    found.directory = _directory()
    found.why_off = _why_off()
    found.is_enabled = found.why_off is None
    found.min_compile_time_s = _setting("jax_persistent_cache_min_compile_time_secs")
    found.min_entry_size_bytes = _setting("jax_persistent_cache_min_entry_size_bytes")
    if found.is_enabled:
        found.after = _folder(found.directory)
        found.is_writable = _is_writable(found.directory)


def _setting(name: str) -> Any:
    return jax.config.values[name]


def _directory() -> str | None:
    return _setting("jax_compilation_cache_dir") or None


def _why_off() -> str | None:
    if _directory() is None:
        return "no folder is set"
    if not _setting("jax_enable_compilation_cache"):
        return "jax_enable_compilation_cache is False"
    return None


def _folder(directory: str | None) -> Folder | None:
    """Returns the folder's content. Entries are the files that JAX names …-cache; XLA's own caches next to them do not
    count."""
    if directory is None or "://" in directory or not Path(directory).is_dir():
        return None
    sizes: list[int] = []
    for file in Path(directory).glob("*-cache"):
        with contextlib.suppress(OSError):  # another process may evict it under our eyes
            if file.is_file():
                sizes.append(file.stat().st_size)
    return Folder(len(sizes), sum(sizes))


def _is_writable(directory: str | None) -> bool | None:
    """Says whether a folder, or the first one above it that exists where JAX has yet to make it, can be written to."""
    if directory is None or "://" in directory:
        return None
    path = Path(directory).absolute()
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    return existing.is_dir() and os.access(existing, os.W_OK | os.X_OK)
