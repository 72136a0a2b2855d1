"""A persistent compilation cache for the length of a job: what one worker has compiled, the next one reads.

The program that sends the jobs is not touched: its stages are those of real compilations. The setting is public; that
JAX has to be told to look at it again is not (`jax.experimental.compilation_cache`, jax 0.6.0 to 0.12.0.1). Without it
programs are compiled again, which takes longer and changes nothing else.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from benchax.executors.settings import apply_settings, jax_settings

_SETTINGS: dict[str, Any] = {
    "jax_enable_compilation_cache": True,
    # By default only what takes a second to compile is kept.
    "jax_persistent_cache_min_compile_time_secs": 0.0,
    "jax_persistent_cache_min_entry_size_bytes": -1,
}


@contextmanager
def share_programs(folder: str) -> Iterator[None]:
    """Programs are read from and written to `folder` inside the block. Settings are as before after it."""
    before = jax_settings()
    wanted = _SETTINGS | {"jax_compilation_cache_dir": folder}
    apply_settings(wanted)
    _look_again()
    try:
        with warnings.catch_warnings():
            # The folder is ours: where it cannot be read or written to, programs are compiled.
            warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache", UserWarning)
            yield
    finally:
        apply_settings({name: before[name] for name in wanted if name in before})
        _look_again()


def _look_again() -> None:
    """JAX decides at the first compilation of a process whether there is a cache, and where."""
    try:
        from jax.experimental.compilation_cache import compilation_cache  # noqa: PLC0415

        compilation_cache.reset_cache()
    except (ImportError, AttributeError):  # a JAX that has moved it: then workers compile what they run
        return
