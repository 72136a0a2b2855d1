"""The number of threads that OpenBLAS uses, in the libraries that this process has loaded.

The zygote must have no threads, so NumPy and SciPy are loaded with one thread there. A worker must compute as any
other process does: `jnp.linalg` on CPU calls SciPy's LAPACK, and would take twice as long on two cores.

Tried with NumPy 2.4 and 2.5, and SciPy 1.17 and 1.18, from PyPI. Elsewhere nothing is found and nothing is changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchax.environment import count_cores

_LIBRARY = re.compile(r"^(?:\S+\s+){5}(/.*openblas[^/]*\.so[^/\n]*)$", re.MULTILINE)
"""A line of /proc/self/maps: five words, then a path, which may hold blanks."""
_NAMES = (
    "scipy_openblas_{}_num_threads64_",
    "scipy_openblas_{}_num_threads",
    "openblas_{}_num_threads64_",
    "openblas_{}_num_threads",
)


def thread_counts() -> dict[str, int]:
    """By library."""
    found = {path: _function(path, "get") for path in _find_libraries()}
    return {path: function() for path, function in found.items() if function is not None}


def set_threads(count: int) -> None:
    for path in _find_libraries():
        if (function := _function(path, "set")) is not None:
            function(count)


def usual_threads(variables: Mapping[str, str]) -> int:
    """How many OpenBLAS takes in a process with these environment variables."""
    for name in ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS"):
        with contextlib.suppress(ValueError, KeyError):
            if (count := int(variables[name])) > 0:
                return count
    return count_cores()


def _find_libraries() -> list[str]:
    try:
        return sorted(set(_LIBRARY.findall(Path("/proc/self/maps").read_text())))
    except OSError:
        return []


def _function(path: str, verb: str) -> Any:
    try:
        # What is loaded already is not loaded again: this is the copy that NumPy or SciPy uses.
        library = ctypes.CDLL(path)
    except OSError:  # replaced or removed since it was loaded
        return None
    return next((getattr(library, name.format(verb)) for name in _NAMES if hasattr(library, name.format(verb))), None)
