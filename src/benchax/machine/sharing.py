"""Several processes on one accelerator.

JAX takes three quarters of a GPU's memory when its backend starts. Whatever starts next finds a quarter, or nothing:
on an H100 (jax 0.11.2) workers failed with "out of memory" at arrays of a megabyte. So where we start processes, each
takes memory as it needs it. Steady times are the same; a first call may wait for the driver.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from benchax.environment import has_jax_plugins

PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"
_CHOSEN = (PREALLOCATE, "XLA_PYTHON_CLIENT_MEM_FRACTION", "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_ALLOCATOR")
"""Who sets one of these has decided how memory is taken."""


def memory_on_demand(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Variables for processes that share an accelerator: empty if JAX has none, or the user has set others."""
    if any(name in environ for name in _CHOSEN) or not has_jax_plugins():
        return {}
    return {PREALLOCATE: "false"}
