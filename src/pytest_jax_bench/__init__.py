"""A pytest plugin that benchmarks JAX functions, eager and jitted: times, compilation, memory. benchax measures.

Public is what this file lists. Names are resolved on first use: pytest loads this package in every session, and one
without benchmarks must not wait for JAX or NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_jax_bench.data import BenchData, last_entries_with, load_bench_data
    from pytest_jax_bench.fixture import JaxBench
    from pytest_jax_bench.measure import BenchmarkFailed

_HOME = {
    "BenchData": "pytest_jax_bench.data",
    "BenchmarkFailed": "pytest_jax_bench.measure",
    "JaxBench": "pytest_jax_bench.fixture",
    "last_entries_with": "pytest_jax_bench.data",
    "load_bench_data": "pytest_jax_bench.data",
}

__all__ = ["BenchData", "BenchmarkFailed", "JaxBench", "last_entries_with", "load_bench_data"]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("benchax")
    if name not in _HOME:
        raise AttributeError(f"module 'pytest_jax_bench' has no attribute {name!r}; public are: {', '.join(__all__)}")
    value = getattr(importlib.import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
