"""benchax: benchmarks and profiles of JAX functions, and no number that it cannot stand behind.

Public is what this file lists. Names are resolved on first use, so that `import benchax` loads neither JAX nor NumPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import benchax.clock as clock
    import benchax.workloads as workloads
    from benchax.api import bench
    from benchax.auditing.audit import audit
    from benchax.auditing.checklist import checklist
    from benchax.case import benchmark
    from benchax.clock.deadline import with_deadline
    from benchax.comparing.break_even import BreakEven, break_even
    from benchax.comparing.ranking import Comparisons
    from benchax.compiled_grids.compiled import compiled_grid
    from benchax.compiled_grids.compiled_result import CompiledGridResult
    from benchax.errors import (
        BenchaxError,
        DeadlineExceeded,
        FormatError,
        MissingPackage,
        NotAvailable,
        NotMeasured,
        StoreError,
        UsageError,
    )
    from benchax.experiments.experiment import experiment
    from benchax.grids.grid import grid
    from benchax.grids.result import GridResult
    from benchax.inspecting.inspect import inspect
    from benchax.measuring.scaling import scaling
    from benchax.model import Comparison, Environment, Measurement, Options
    from benchax.paired_runs.compare import compare, compare_jax, compare_ref, compare_stored
    from benchax.profiling.profile import profile
    from benchax.progress import ProgressEvent
    from benchax.results.audit import Audit, Checklist
    from benchax.results.experiment import Experiment, Scaling
    from benchax.results.inspection import Inspection
    from benchax.results.profile import Profile
    from benchax.results.watch import CacheUse, Transfers, Watch
    from benchax.stats.summary import Summary
    from benchax.store.load import Rows, load
    from benchax.watching.compiles import watch_cache
    from benchax.watching.transfers import watch_transfers
    from benchax.watching.watch import RecompileError, max_compiles, no_recompile, watch

_HOME = {
    "Audit": "benchax.results.audit",
    "audit": "benchax.auditing.audit",
    "Checklist": "benchax.results.audit",
    "checklist": "benchax.auditing.checklist",
    "bench": "benchax.api",
    "benchmark": "benchax.case",
    "BreakEven": "benchax.comparing.break_even",
    "break_even": "benchax.comparing.break_even",
    "Comparison": "benchax.model",
    "Comparisons": "benchax.comparing.ranking",
    "compare": "benchax.paired_runs.compare",
    "compare_jax": "benchax.paired_runs.compare",
    "compare_ref": "benchax.paired_runs.compare",
    "compare_stored": "benchax.paired_runs.compare",
    "clock": "benchax.clock",
    "with_deadline": "benchax.clock.deadline",
    "BenchaxError": "benchax.errors",
    "DeadlineExceeded": "benchax.errors",
    "FormatError": "benchax.errors",
    "MissingPackage": "benchax.errors",
    "NotAvailable": "benchax.errors",
    "NotMeasured": "benchax.errors",
    "StoreError": "benchax.errors",
    "UsageError": "benchax.errors",
    "experiment": "benchax.experiments.experiment",
    "Experiment": "benchax.results.experiment",
    "compiled_grid": "benchax.compiled_grids.compiled",
    "CompiledGridResult": "benchax.compiled_grids.compiled_result",
    "grid": "benchax.grids.grid",
    "GridResult": "benchax.grids.result",
    "inspect": "benchax.inspecting.inspect",
    "Inspection": "benchax.results.inspection",
    "Environment": "benchax.model",
    "Measurement": "benchax.model",
    "Options": "benchax.model",
    "Profile": "benchax.results.profile",
    "profile": "benchax.profiling.profile",
    "ProgressEvent": "benchax.progress",
    "Summary": "benchax.stats.summary",
    "Rows": "benchax.store.load",
    "scaling": "benchax.measuring.scaling",
    "Scaling": "benchax.results.experiment",
    "load": "benchax.store.load",
    "CacheUse": "benchax.results.watch",
    "Transfers": "benchax.results.watch",
    "Watch": "benchax.results.watch",
    "RecompileError": "benchax.watching.watch",
    "max_compiles": "benchax.watching.watch",
    "no_recompile": "benchax.watching.watch",
    "watch": "benchax.watching.watch",
    "watch_cache": "benchax.watching.compiles",
    "watch_transfers": "benchax.watching.transfers",
    "workloads": "benchax.workloads",
}

__all__ = [
    "Audit",
    "BenchaxError",
    "BreakEven",
    "CacheUse",
    "Checklist",
    "Comparison",
    "Comparisons",
    "CompiledGridResult",
    "DeadlineExceeded",
    "Environment",
    "Experiment",
    "FormatError",
    "GridResult",
    "Inspection",
    "Measurement",
    "MissingPackage",
    "NotAvailable",
    "NotMeasured",
    "Options",
    "Profile",
    "ProgressEvent",
    "RecompileError",
    "Rows",
    "Scaling",
    "StoreError",
    "Summary",
    "Transfers",
    "UsageError",
    "Watch",
    "audit",
    "bench",
    "benchmark",
    "break_even",
    "checklist",
    "clock",
    "compare",
    "compare_jax",
    "compare_ref",
    "compare_stored",
    "compiled_grid",
    "experiment",
    "grid",
    "inspect",
    "load",
    "max_compiles",
    "no_recompile",
    "profile",
    "scaling",
    "watch",
    "watch_cache",
    "watch_transfers",
    "with_deadline",
    "workloads",
]


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version("benchax")
    if name not in _HOME:
        raise AttributeError(f"module 'benchax' has no attribute {name!r}; public names: {', '.join(__all__)}")
    home = importlib.import_module(_HOME[name])
    value = home if home.__name__ == f"benchax.{name}" else getattr(home, name)
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """Registers the magics after `%load_ext benchax`: `%benchax f(x)` and `%%benchax` then measure."""
    importlib.import_module("benchax.magics").register(shell)


def __dir__() -> list[str]:
    return __all__
