"""Captures what the profiler of JAX sees, and reads it: operations, devices, gaps.

`serve` is for users' programs; it is loaded on first use, because reading a trace needs no JAX.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchax.profiling.serving import serve

__all__ = ["serve"]


def __getattr__(name: str) -> Any:
    if name != "serve":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module("benchax.profiling.serving").serve
