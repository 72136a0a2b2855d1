"""What matplotlib makes of a picture: looked at as artists and as files, since a test has no eyes."""

from __future__ import annotations

import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from ptjb_rows import in_runs, measured, rows

from pytest_jax_bench.plots.draw import figure, save
from pytest_jax_bench.plots.pictures import by_parameter, by_tag, history, summary
from pytest_jax_bench.plots.readings import Picture

TEST = "tests/test_x.py::test_full"


def drawn(picture: Picture) -> Any:
    """The figure, laid out."""
    made = figure(picture)
    FigureCanvasAgg(made).draw()
    return made


def legends(made: Any) -> list[Any]:
    return [*made.legends, *(axes.get_legend() for axes in made.axes if axes.get_legend())]


def labels(made: Any) -> list[list[str]]:
    return [[text.get_text() for text in legend.get_texts()] for legend in legends(made)]


def drawn_lines(axes: Any) -> list[Any]:
    """Lines of series; a legend and error bars have lines of other kinds."""
    return [line for line in axes.lines if line.get_linestyle() in ("-", "--") and len(line.get_xdata()) > 1]


@pytest.mark.parametrize(
    ("jit_ms", "expected"), [(1.1, "run time (ms)"), (0.0031, "run time (µs)"), (2500.0, "run time (s)")]
)
def test_a_linear_axis_has_its_unit_in_its_label(jit_ms: float, expected: str) -> None:
    axes = drawn(history(measured(3, jit_ms, eager_ms=np.nan), TEST)).axes[0]

    assert axes.get_ylabel() == expected
    assert 0 <= axes.get_ylim()[0] < axes.lines[0].get_ydata()[0] < axes.get_ylim()[1] < 10_000


def test_a_logarithmic_axis_has_it_at_each_tick() -> None:
    data = np.concatenate([measured(1, jit_ms=10.0**k, jit_peak_bytes=2 ** (10 + 10 * k)) for k in range(3)])

    times, _, memory = drawn(by_parameter(data, {"n": [1, 10, 100]}, "n", TEST)).axes

    assert {text.get_text() for text in times.get_yticklabels()} >= {"1 ms", "10 ms", "100 ms"}
    assert "4 MiB" in [text.get_text() for text in memory.get_yticklabels()]


def test_zero_bytes_have_a_place_on_a_logarithmic_axis() -> None:
    data = np.concatenate([measured(1, jit_temporary_bytes=b, jit_peak_bytes=2**k) for k, b in ((12, 0), (30, 2**28))])

    memory = drawn(by_parameter(data, {"n": [1, 2]}, "n", TEST)).axes[2]

    assert "0 B" in [text.get_text() for text in memory.get_yticklabels()]


def test_a_hundredth_more_is_no_cliff() -> None:
    axes = drawn(history(measured(2, jit_ms=[1.0, 1.01], eager_ms=np.nan), TEST)).axes[0]

    low, high = axes.get_ylim()
    assert 0.01 / (high - low) < 0.05


def test_a_line_ends_at_a_gap_and_connects_no_names() -> None:
    data = measured(3, eager_ms=np.nan)
    data["jit_median_ms"][1] = data["jit_mean_ms"][1] = np.nan

    (line,) = drawn_lines(drawn(history(data, TEST)).axes[0])

    assert np.isnan(line.get_ydata()).tolist() == [False, True, False]
    names = drawn(by_tag(in_runs(measured(1, tag="a"), measured(1, tag="b")), TEST))
    assert not any(drawn_lines(axes) for axes in names.axes)
    assert not any(drawn_lines(axes) for axes in drawn(history(measured(4), TEST, "commit")).axes)


def test_rows_that_cannot_be_compared_are_not_connected() -> None:
    data = measured(4, eager_ms=np.nan, timer=["wall", "wall", "loop", "loop"])

    lines = drawn_lines(drawn(history(data, TEST)).axes[0])

    assert [line.get_xdata().tolist() for line in lines] == [[0, 1], [2, 3]]
    assert len({line.get_marker() for line in lines}) == 2


def test_a_commit_is_named_where_its_runs_stand() -> None:
    data = in_runs(*(measured(6, tag=tag, commit=["aaa"] * 4 + ["bbb"] * 2) for tag in ("fft", "rfft")))

    axes = drawn(history(data, TEST)).axes[0]

    (top,) = axes.child_axes
    assert [(text.get_position()[0], text.get_text()) for text in top.get_xticklabels()] == [(1.5, "aaa"), (4.5, "bbb")]
    assert top.get_xlim() == axes.get_xlim()


@pytest.mark.slow
def test_of_many_commits_as_many_are_named_as_fit() -> None:
    for axis, count in (("run", 30), ("commit", 100), ("run", 100)):
        data = measured(count, commit=[f"v0.3-{i}-g3413a46" for i in range(count)])
        made = drawn(history(data, TEST, axis))
        named = made.axes[0].child_axes[0] if axis == "run" else made.axes[-1]

        boxes = [text.get_window_extent() for text in named.get_xticklabels()]

        assert len(boxes) >= 20
        assert not any(a.overlaps(b) for a, b in pairwise(boxes))


def test_failures_are_marked_and_named() -> None:
    data = np.concatenate([measured(2), rows(1, run_id=2, status="out_of_memory")])

    made = drawn(history(data, TEST))

    assert labels(made)[0] == ["jitted", "eager", "failed: out of memory"]
    (mark,) = [line for line in made.axes[0].lines if line.get_marker() == "X"]
    assert mark.get_xdata().tolist() == [2]


def test_where_names_stand_a_line_without_number_says_why() -> None:
    tests = [("t.py::a", measured(1)), ("t.py::b", rows(1, status="timeout")), ("t.py::c", rows(1))]

    axes = drawn(summary(tests)[0]).axes[0]

    assert [(t.get_text(), t.get_position()[1]) for t in axes.texts] == [("✗ timeout", 1), ("not measured", 2)]


def test_among_values_of_others_a_failure_is_a_mark_and_hides_nothing() -> None:
    data = np.concatenate([measured(1), measured(1), rows(1, status="timeout")])

    made = drawn(by_parameter(data, {"kind": ["a", "b", "b"], "n": [1, 1, 2]}, "kind", TEST))

    assert [text.get_text() for text in made.axes[0].texts] == []
    assert labels(made) == [["n=1", "failed: timeout"]]
    (mark,) = [line for line in made.axes[0].lines if line.get_marker() == "X"]
    assert mark.get_ydata().tolist() == [1]


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["ok", "ok"], "not measured, because no row of this test holds a number"),
        (["timeout", "timeout"], "not measured, because every run failed: timeout (2 ×)"),
        (["error", "ok"], "not measured, because 1 of 2 rows failed, and the others hold no number: error (1 ×)"),
    ],
)
def test_a_test_without_any_number_has_a_picture_that_says_so(statuses: list[str], expected: str) -> None:
    axes = drawn(history(rows(2, status=statuses), TEST)).axes[0]

    assert [text.get_text() for text in axes.texts] == [expected]


def test_legends_lie_outside_of_the_data() -> None:
    tagged = in_runs(*(measured(3, tag=f"{i} {'long' * 20}") for i in range(12)))
    parameters = by_parameter(np.concatenate([measured(1), measured(1)]), {"kind": ["a", "b"]}, "kind", TEST)
    for picture in (history(measured(3), TEST), history(tagged, TEST), parameters):
        made = drawn(picture)

        assert legends(made)
        for legend in legends(made):
            box = legend.get_window_extent()
            assert not any(box.overlaps(axes.patch.get_window_extent()) for axes in made.axes)


def test_one_series_is_named_in_the_legend_or_in_the_label() -> None:
    """Or nobody knows whether it was jitted or eager."""
    made = drawn(history(measured(2, eager_ms=np.nan, eager_peak_bytes=-1, jit_temporary_bytes=-1), TEST))

    assert labels(made) == [["jitted"], ["jitted, peak"]]


def test_forty_tests_can_be_read() -> None:
    tests = [(f"tests/test_{i % 3}.py::test_with_a_name_{i}[{i}-float32]", measured(2)) for i in range(40)]

    made = drawn(summary(tests)[0])

    boxes = [text.get_window_extent() for text in made.axes[0].get_yticklabels()]
    assert len(boxes) == 40
    assert not any(a.overlaps(b) for a, b in pairwise(boxes))
    assert all(box.x0 >= 0 and box.height > 8 for box in boxes)


@pytest.mark.slow
@settings(max_examples=4)
@given(st.text(st.characters(), max_size=30) | st.sampled_from([r"$\frac{", "$", "_hidden", "測試", "-->", "\x00<&"]))
def test_any_tag_and_any_name_can_be_drawn(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "main.svg"
    data = in_runs(measured(2, tag=text, commit=text), measured(2, tag="other"))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save(history(data, f"t.py::test[{text}]"), path)

    assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "begin"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_the_suffix_is_the_format_and_equal_rows_give_equal_files(tmp_path: Path, suffix: str, begin: bytes) -> None:
    files = [tmp_path / "new" / f"{i}.{suffix}" for i in range(2)]
    for file in files:
        save(history(measured(3), TEST), file)

    first, second = (file.read_bytes() for file in files)

    assert first.startswith(begin)
    assert first == second
    assert b"http://fonts" not in first


def test_settings_of_the_user_neither_change_nor_are_changed(tmp_path: Path) -> None:
    """text.usetex would need TeX, and fail."""
    with mpl.rc_context({"text.usetex": True, "figure.facecolor": "black", "font.size": 31}):
        save(history(measured(3), TEST), tmp_path / "theirs.png")

        assert mpl.rcParams["font.size"] == 31
    save(history(measured(3), TEST), tmp_path / "plain.png")
    assert (tmp_path / "theirs.png").read_bytes() == (tmp_path / "plain.png").read_bytes()
