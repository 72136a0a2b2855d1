"""A pytest plugin that benchmarks JAX functions, eager and jitted: times, compilation, memory. benchax measures.

Public is what this file lists. Names are resolved on first use: pytest loads this package in every session, and one
without benchmarks must not wait for JAX or NumPy.
"""

from __future__ import annotations

import gc
import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_jax_bench.data import BenchData, last_entries_with, load_bench_data
    from pytest_jax_bench.fixture import JaxBench
    from pytest_jax_bench.measure import BenchmarkFailed

_HOME = {
    "BenchData": "data",
    "BenchmarkFailed": "measure",
    "JaxBench": "fixture",
    "last_entries_with": "data",
    "load_bench_data": "data",
}

__all__ = ["BenchData", "BenchmarkFailed", "JaxBench", "last_entries_with", "load_bench_data"]


def load(name: str) -> ModuleType:
    """Imports a module of this package, with what it needs, in half the processor time of an import statement.

    Garbage collection would run repeatedly while thousands of objects are made next to all of JAX's, and would find
    nothing. The objects stay, so later collections ignore them. pytest would rewrite the asserts of our own modules,
    too.
    """
    name = f"{__name__}.{name}"
    if name in sys.modules:
        return sys.modules[name]
    was_enabled, finders = gc.isenabled(), list(sys.meta_path)
    gc.disable()
    sys.meta_path[:] = [finder for finder in finders if type(finder).__name__ != "AssertionRewritingHook"]
    try:
        return importlib.import_module(name)
    finally:
        sys.meta_path[:] = [*[finder for finder in sys.meta_path if finder not in finders], *finders]
        gc.freeze()
        if was_enabled:
            gc.enable()


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("benchax")
    if name not in _HOME:
        raise AttributeError(f"module 'pytest_jax_bench' has no attribute {name!r}; public names: {', '.join(__all__)}")
    value = getattr(load(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
