"""From the rows of CSV files to pictures: series, axes and notes make a `Picture`, drawing makes a file of it.

`plot_parametrized_benchmark` and `prepare_xaxis` are here for code that was written for pytest-jax-bench 0.5.0.
"""

from __future__ import annotations

from pytest_jax_bench.plots.draw_all import plot_parametrized_benchmark, prepare_xaxis

__all__ = ["plot_parametrized_benchmark", "prepare_xaxis"]
