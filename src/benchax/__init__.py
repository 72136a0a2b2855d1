"""benchax: benchmarks and profiles of JAX functions, and no number that it cannot stand behind.

Public is what this file lists. Names are resolved on first use, so that `import benchax` loads neither JAX nor NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from benchax.api import bench
    from benchax.case import benchmark
    from benchax.comparing.break_even import BreakEven, break_even
    from benchax.errors import BenchaxError, FormatError, MissingPackage, NotMeasured, StoreError, UsageError
    from benchax.model import Environment, Measurement, Options
    from benchax.stats.summary import Summary
    from benchax.store.reading import Rows, load

_HOME = {
    "bench": "benchax.api",
    "benchmark": "benchax.case",
    "BreakEven": "benchax.comparing.break_even",
    "break_even": "benchax.comparing.break_even",
    "BenchaxError": "benchax.errors",
    "FormatError": "benchax.errors",
    "MissingPackage": "benchax.errors",
    "NotMeasured": "benchax.errors",
    "StoreError": "benchax.errors",
    "UsageError": "benchax.errors",
    "Environment": "benchax.model",
    "Measurement": "benchax.model",
    "Options": "benchax.model",
    "Summary": "benchax.stats.summary",
    "Rows": "benchax.store.reading",
    "load": "benchax.store.reading",
}

__all__ = [
    "BenchaxError",
    "BreakEven",
    "Environment",
    "FormatError",
    "Measurement",
    "MissingPackage",
    "NotMeasured",
    "Options",
    "Rows",
    "StoreError",
    "Summary",
    "UsageError",
    "bench",
    "benchmark",
    "break_even",
    "load",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'benchax' has no attribute {name!r}; public are: {', '.join(__all__)}")
    # Whatever public name comes first, rows know how to show themselves from then on.
    importlib.import_module("benchax.reporting.display")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
