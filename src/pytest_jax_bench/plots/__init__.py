"""From the rows of CSV files to pictures: readings, axes and notes make a `Picture`, drawing makes a file of it.

`plot_parametrized_benchmark` and `prepare_xaxis` are here for code that was written for pytest-jax-bench 0.5.0.
"""

from __future__ import annotations

import importlib
from typing import Any

_OF_0_5_0 = ("plot_parametrized_benchmark", "prepare_xaxis")


def __getattr__(name: str) -> Any:
    if name not in _OF_0_5_0:
        raise AttributeError(f"module 'pytest_jax_bench.plots' has no attribute {name!r}")
    # By name: the pictures are drawn without these, which need the pictures.
    return getattr(importlib.import_module("pytest_jax_bench.plots.draw_all"), name)
