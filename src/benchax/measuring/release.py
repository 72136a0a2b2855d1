"""Releases compiled programs, in a process of benchax that measures many cases.

The program of a measured function ends with the function. The programs of the eager reference don't: JAX keeps one of
about 1 MiB for each operation and shape, and up to 4096 for each operation. A thousand cases took 4 GB.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import ctypes
import gc
import sys

import jax
from jax.extend.backend import get_backend

from benchax.measuring.stages import forget_first_uses

MOST = 200
"""The number of programs that can stay: compiling them again takes longer than keeping them."""
_kept = 0
"""Programs that were still in use after the last release."""


def release_programs() -> None:
    """Makes JAX forget all programs and traces once there are `MOST` new ones.

    Not for a process of the user's, whose own functions would compile again.
    """
    global _kept
    if count_programs() - _kept <= MOST:
        return
    jax.clear_caches()
    forget_first_uses()  # of JAX's own functions, whose traces are gone too
    gc.collect()
    _return_freed_memory()
    _kept = count_programs()


def count_programs() -> int:
    """Returns the number of compiled programs in this process. It is 0 if no backend has started, or the number is not
    available.
    """
    # To ask for the backend would start it, and on an accelerator take the memory that workers need. Whether it has
    # started JAX tells in private only (jax 0.6.0 to 0.12.0.1).
    has_started = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", None)
    if has_started is None or not has_started():
        return 0
    live = getattr(get_backend(), "live_executables", list)
    return len(live())


def _return_freed_memory() -> None:
    """glibc would keep it. Without this 20 released programs left the process as large as it was."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
