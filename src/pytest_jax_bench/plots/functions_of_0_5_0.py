"""Two functions that code outside calls by the names of pytest-jax-bench 0.5.0; they draw what `draw_all` does.

New features are elsewhere. 0.5.0 drew the commits along "run" at the wrong places; here they are at their runs.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from benchax.errors import UsageError, one_of, require
from pytest_jax_bench.csv import files as csv_files
from pytest_jax_bench.plots.draw_all import PlotRequest, draw_all


def plot_parametrized_benchmark(
    path: str | os.PathLike[str], xaxis: str = "commit", save: str = "png", trep: Any = None
) -> None:
    """Draws the newest runs of one test over each of its parameters, as `PATH/n.png`.

    Args:
        path: the folder of the test, such as .benchmarks/tests-test_x.py--test_fft.
        xaxis: ignored; 0.5.0 has it.
        save: png, pdf or svg.
        trep: "print", or an object with `write_line`; receives the names of the drawn files.
    """
    folder = Path(path)
    files = [file for file in sorted(folder.rglob("*.csv")) if csv_files.is_ours(file)]
    drawn = draw_all(
        [PlotRequest(folder.name, file) for file in files],
        folder=folder.parent,
        file_format=save,  # pyright: ignore[reportArgumentType]  # matplotlib refuses what it does not know
        kinds=("parameters",),
    )
    for line in [*(f"Generated plot {file}" for file in drawn.files), *drawn.problems]:
        if trep == "print":
            print(line)  # noqa: T201  # what 0.5.0 does when it is told so
        elif trep is not None:
            trep.write_line(line)


def prepare_xaxis(data: np.ndarray, xaxis: str = "commit", ax: Any = None) -> tuple[Any, Any, np.ndarray]:
    """Where the rows stand on an axis, which gets its ticks and its name.

    Args:
        data: as `load_bench_data` gives it.
        xaxis: "run", "commit", "tag" (of each the newest row), or a column of numbers.
        ax: axes of matplotlib; None: the current ones.

    Returns:
        (x, ax, data): `data` with the rows that x stands for.

    Raises:
        UsageError: no such axis.
    """
    pyplot = require("matplotlib.pyplot", doing="drawing plots")
    if ax is None:
        ax = pyplot.gca()
    columns = data.dtype.names or ()
    if xaxis == "run":
        return _along_runs(data, ax), ax, data
    if xaxis == "commit":
        return _along_commits(data, ax), ax, data
    if xaxis == "tag":
        data = data[
            sorted({tag: i for i, tag in enumerate(data["tag"].tolist())}.values(), key=lambda i: data["tag"][i])
        ]
        ax.set_xticks(range(len(data)), data["tag"].tolist())
        return np.arange(len(data)), ax, data
    if xaxis not in columns:
        raise UsageError(f"unknown xaxis {xaxis!r}", one_of(["run", "commit", "tag", *columns], xaxis))
    ax.set_xlabel(xaxis)
    return data[xaxis], ax, data


def _commits(data: np.ndarray) -> dict[str, list[int]]:
    """Rows by their commit, in the order of the file."""
    found: dict[str, list[int]] = {}
    for i, commit in enumerate(data["commit"].tolist()):
        found.setdefault(commit, []).append(i)
    return found


def _along_runs(data: np.ndarray, ax: Any) -> np.ndarray:
    ax.set_xlabel("Run")
    commits = _commits(data)
    above = ax.secondary_xaxis("top")
    above.set_xticks([data["run_id"][rows[0]] for rows in commits.values()], list(commits), rotation=90, fontsize=8)
    return data["run_id"]


def _along_commits(data: np.ndarray, ax: Any) -> np.ndarray:
    """A commit is one long; its runs share that."""
    commits = _commits(data)
    x = np.zeros(len(data))
    for at, rows in enumerate(commits.values()):
        runs = data["commit_run"][rows]
        x[rows] = at + runs / (1 + runs.max())
    ax.set_xlabel("Commit")
    ax.set_xticks(range(len(commits)), list(commits), rotation=90 if len(commits) > 10 else 0)
    return x
