"""Settings of JAX: the program's settings that a worker needs, too, and those of a cache for the length of a job.

Settings from all sources except the environment travel to the worker. With the persistent cache, one worker reads the
compilations of another one. The program that sends the jobs is not affected: its stages are those of real compilations.
The setting is public. The function that makes JAX read it again is not (`jax.experimental.compilation_cache`, jax 0.6.0
to 0.12.0.1). Without it, programs are compiled again, which takes longer and changes nothing else.

benchax's own programs, which time a function or check its result, are kept from run to run. Compiling them took more
than half of the processor time of a run of short cases. The measured function itself is compiled each time.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax
import platformdirs

from benchax.environment import host
from benchax.whole_files import hide_from_git

_SETTINGS: dict[str, Any] = {
    "jax_enable_compilation_cache": True,
    # By default, JAX keeps only programs that take a second to compile.
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


def jax_settings() -> dict[str, Any]:
    """All that JSON has a word for, by name. Starts no backend: on an accelerator this process would take memory that
    a worker needs."""
    # `values` is not documented (jax 0.6.0 to 0.12.0.1 have it). Without it, only settings from code are lost.
    names = getattr(jax.config, "values", {})
    found = {name: getattr(jax.config, name, value) for name, value in dict(names).items()}
    return {name: v for name, v in found.items() if v is None or isinstance(v, str | int | float | bool)}


def apply_settings(wanted: dict[str, Any]) -> None:
    """Passes over those of a part of JAX that is not loaded here, such as Pallas in jax 0.6.2: it brings them along."""
    here = jax_settings()
    for name, value in wanted.items():
        if name in here and here[name] != value:
            jax.config.update(name, value)


def imported_jax() -> str:
    """Returns the version that the module itself says: what is installed may not be what was found first."""
    return jax.__version__


MOST_KEPT_BYTES = 256 * 2**20
CHECKED_S = 3600.0
"""The size of kept programs is checked once in this time: looking at tens of thousands of files takes 0.1 s."""


@lru_cache(maxsize=1)
def kept_programs() -> str:
    """The folder of the programs that are kept on this machine; empty if there can't be one.

    A home folder may be shared by machines, and compiled code runs on processors of its own kind alone.
    """
    here = host()
    machine = hashlib.blake2b(f"{here.host}\n{here.processor}".encode(), digest_size=8).hexdigest()
    cache = Path(platformdirs.user_cache_dir("benchax"))
    folder = cache / "programs" / machine
    try:
        folder.mkdir(parents=True, exist_ok=True)
        hide_from_git(cache)  # a home folder may be, or lie in, a checkout, which the cache must not make dirty
        if _is_due(folder.with_suffix(".checked")):
            _remove_oldest(folder, MOST_KEPT_BYTES)
    except OSError:
        return ""
    return str(folder) if os.access(folder, os.W_OK) else ""


def _is_due(mark: Path) -> bool:
    """Is the last check, whose time the file `mark` has, long ago? This one is noted."""
    is_due = not mark.exists() or abs(datetime.now(UTC).timestamp() - mark.stat().st_mtime) > CHECKED_S
    if is_due:
        mark.touch()
    return is_due


def _remove_oldest(folder: Path, most_bytes: int) -> None:
    """If there are more than `most_bytes`, removes the oldest until half of `most_bytes` is free again."""
    files = sorted((file.stat().st_mtime, file.stat().st_size, file.path) for file in os.scandir(folder))
    total = sum(size for _, size, _ in files)
    if total <= most_bytes:
        return
    for _, size, path in files:
        if total <= most_bytes / 2:
            return
        with suppress(OSError):  # another run may have removed it
            Path(path).unlink()
        total -= size


def keep_programs() -> AbstractContextManager[None]:
    """Inside the block, programs are read from and written to the folder of this machine, if there is one."""
    folder = kept_programs()
    return share_programs(folder) if folder else nullcontext()


@contextmanager
def share_programs(folder: str) -> Iterator[None]:
    """Programs are read from and written to `folder` inside the block. Settings are as before after it."""
    wanted = _SETTINGS | {"jax_compilation_cache_dir": folder}
    try:
        with with_settings(wanted), warnings.catch_warnings():
            _look_again()
            # The folder belongs to benchax. If it cannot be read or written, programs are compiled.
            warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache", UserWarning)
            yield
    finally:
        _look_again()


@contextmanager
def with_settings(wanted: Mapping[str, Any]) -> Iterator[None]:
    """These settings hold inside the block, as far as this JAX has them."""
    # Not by `jax_settings`, which reads 200 of them.
    before = {name: getattr(jax.config, name) for name in wanted if hasattr(jax.config, name)}
    try:
        for name in before:
            jax.config.update(name, wanted[name])
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


def _look_again() -> None:
    """JAX decides at the first compilation of a process whether there is a cache, and where."""
    try:
        from jax.experimental.compilation_cache import compilation_cache  # noqa: PLC0415

        # Without it a changed setting has no effect: after the first compilation even `dir=None` still gave hits (jax
        # 0.10.2).
        compilation_cache.reset_cache()
    except (ImportError, AttributeError):  # a JAX that has moved it: then workers compile what they run
        return


def without_cache() -> AbstractContextManager[None]:
    """A persistent cache would be filled by the first block, and later ones time looking things up."""
    return with_settings({"jax_enable_compilation_cache": False})
