"""Plot functions of users may do anything; what they leave behind is cleared away, and what goes wrong is told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure
from ptjb_rows import measured

from pytest_jax_bench.plots.draw_all import CustomPlotFailed, draw_custom, in_order


def leaves_figures_open(data: Any) -> Any:
    plt.rcParams["font.size"] = 3
    plt.figure()
    fig = plt.figure()
    plt.plot(data["run_id"], data["compile_ms"])
    return fig


def saves_it_itself(data: Any) -> None:
    plt.figure()


def raises(data: Any) -> Any:
    return data["no such column"]


def fails(data: Any) -> Any:
    pytest.fail("looks wrong")


def exits(data: Any) -> Any:
    sys.exit(3)


def is_interrupted(data: Any) -> Any:
    raise KeyboardInterrupt


def returns_a_list(data: Any) -> Any:
    return [1, 2]


def cannot_be_drawn(data: Any) -> Any:
    fig = Figure()
    fig.suptitle(r"$\frac{$")
    return fig


def returns_axes(data: Any) -> Any:
    return Figure().add_subplot()


@pytest.mark.parametrize("function", [leaves_figures_open, returns_axes])
def test_a_returned_figure_is_saved(function: Any, tmp_path: Path) -> None:
    path = tmp_path / "new" / "main_custom.png"

    assert draw_custom(saves_it_itself, measured(3), path) is None
    assert list(tmp_path.iterdir()) == []
    assert draw_custom(function, measured(3), path) == path
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("function", [leaves_figures_open, saves_it_itself])
def test_figures_and_settings_of_a_plot_do_not_reach_the_next_one(function: Any, tmp_path: Path) -> None:
    mine = plt.figure()
    try:
        with mpl.rc_context({"font.size": 11}):
            draw_custom(function, measured(3), tmp_path / "x.png")

            assert plt.get_fignums() == [mine.number]
            assert mpl.rcParams["font.size"] == 11
    finally:
        plt.close(mine)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (raises, r"raises raised ValueError \(test_custom\.py:\d+\): no field of name no such column"),
        (fails, r"fails raised Failed \(test_custom\.py:\d+\): looks wrong"),
        (exits, r"exits raised SystemExit \(test_custom\.py:\d+\): 3"),
        (returns_a_list, "returns_a_list returned a list, expected a matplotlib figure or None"),
        (cannot_be_drawn, "cannot_be_drawn raised ValueError"),
    ],
)
def test_a_failure_is_told_with_name_and_line(function: Any, expected: str, tmp_path: Path) -> None:
    with pytest.raises(CustomPlotFailed, match=expected):
        draw_custom(function, measured(3), tmp_path / "x.png")

    assert plt.get_fignums() == []
    with pytest.raises(KeyboardInterrupt):  # this is none
        draw_custom(is_interrupted, measured(1), tmp_path / "x.png")


def test_numeric_parameters_ascend_within_a_tag() -> None:
    """0.5.0 sorted them as texts: a line over n went 128, 16, 8."""
    data = measured(6, tag=["b", "b", "b", "a", "a", "a"])
    merged = np.zeros(6, dtype=[*data.dtype.descr, ("n", int), ("kind", object)])
    for name in data.dtype.names:
        merged[name] = data[name]
    merged["n"] = [128, 16, 8, 8, 128, 16]

    ordered = in_order(merged)

    assert [(row["tag"], row["n"]) for row in ordered] == [
        ("a", 8), ("a", 16), ("a", 128), ("b", 8), ("b", 16), ("b", 128),
    ]  # fmt: skip
