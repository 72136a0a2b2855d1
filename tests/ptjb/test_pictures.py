"""What stands where in a picture, before anything is drawn."""

from __future__ import annotations

import itertools
import math
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import matplotlib as mpl
import numpy as np
import pytest
from csv_rows_by_hand import in_runs, measured, rows
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from benchax.model import Opaque
from benchax.reporting.document import Axis, Chart, Line, Points, Shade
from benchax.reporting.figures import draw_together
from pytest_jax_bench.plots.draw_all import save_charts
from pytest_jax_bench.plots.pictures import (
    Picture,
    as_text,
    by_parameter,
    by_tag,
    distinct,
    has_tags,
    history,
    names_of_tests,
    natural,
    short,
    summary,
)

TEST = "tests/test_x.py::test_full"


def axes(chart: Chart) -> tuple[Axis, Axis]:
    """(of the rows, of the values)."""
    return (chart.y, chart.x) if chart.y.are_names else (chart.x, chart.y)


def panel(picture: Picture, title: str) -> Chart:
    return next(chart for chart in picture if axes(chart)[1].title == title)


def titles(picture: Picture) -> list[str]:
    return [axes(chart)[1].title for chart in picture]


def points(chart: Chart) -> list[Points]:
    """Of series; the others are failures."""
    return [mark for mark in chart.marks if isinstance(mark, Points) and not mark.style]


def failed(chart: Chart) -> list[tuple[str, tuple[float, ...]]]:
    return [(mark.label, mark.places) for mark in chart.marks if isinstance(mark, Points) and mark.style == "bad"]


def values(picture: Picture, title: str) -> dict[str, dict[float, float]]:
    """By label and place."""
    found: dict[str, dict[float, float]] = {}
    for mark in points(panel(picture, title)):
        found.setdefault(mark.label, {}).update(zip(mark.places, mark.values, strict=True))
    return found


def names(picture: Picture) -> list[str]:
    return [tick.text for tick in axes(picture[0])[0].ticks]


def said(picture: Picture) -> str:
    return " ".join(picture[0].title.split())


# ---- values -----------------------------------------------------------------------------------------------------


def test_times_are_medians_with_their_intervals_in_seconds() -> None:
    jitted = points(panel(history(measured(2, jit_ms=[1.0, 2.0]), TEST), "run time"))[0]

    assert jitted.values == pytest.approx((1e-3, 2e-3))
    assert jitted.lows == pytest.approx((0.98e-3, 1.96e-3))
    assert jitted.highs == pytest.approx((1.02e-3, 2.04e-3))


def test_what_was_not_measured_is_a_gap() -> None:
    """-1 bytes, NaN, and the 0.00 ms that pytest-jax-bench writes for anything short, are no values."""
    data = measured(3)
    data["jit_peak_bytes"][1], data["jit_median_ms"][1], data["jit_mean_ms"][1] = -1, np.nan, 0.0

    picture = history(data, TEST)

    assert values(picture, "memory")["jitted, peak"] == {0: 25296896, 2: 25296896}
    assert values(picture, "run time")["jitted"] == pytest.approx({0: 1.1e-3, 2: 1.1e-3})
    (line,) = [m for m in panel(picture, "run time").marks if isinstance(m, Line) and m.label == "jitted"]
    assert np.isnan(line.y).tolist() == [False, True, False]


def test_columns_without_any_value_are_not_in_the_picture() -> None:
    picture = history(rows(3, jit_median_ms=1.0, jit_temporary_bytes=0), TEST)

    assert titles(picture) == ["run time", "memory"]
    assert list(values(picture, "run time")) == ["jitted"]
    assert values(picture, "memory") == {"jitted, temporary": {0: 0, 1: 0, 2: 0}}  # measured, and none


def test_constants_are_shown_where_they_matter() -> None:
    few, many = measured(2, jit_constants_bytes=4), measured(2, jit_constants_bytes=2_000_000)

    assert "jitted, constants" not in values(history(few, TEST), "memory")
    assert "jitted, constants" in values(history(many, TEST), "memory")


def test_means_of_older_rows_are_a_series_of_their_own_and_are_explained() -> None:
    data = measured(3)
    for column in ("jit_median_ms", "jit_low_ms", "jit_high_ms"):
        data[column][0] = np.nan

    picture = history(data, TEST)

    found = values(picture, "run time")
    assert list(found["jitted"]) == [1, 2]
    assert list(found["jitted, mean"]) == [0]
    assert "A mean has the standard deviation of its samples" in said(picture)


def test_in_a_history_eager_does_not_flatten_a_much_faster_jitted_function() -> None:
    near, far = history(measured(2, 1.0, 5.0), TEST), history(measured(2, 0.01, 5.0), TEST)

    assert titles(near)[:2] == ["run time", "compile time"]
    assert titles(far)[:2] == ["run time, jitted", "run time, eager"]
    assert not any(axes(chart)[1].is_log for chart in far[:2])


def test_a_hundredth_more_is_no_cliff_and_decades_are_a_logarithmic_axis() -> None:
    near = history(measured(2, jit_ms=[1.0, 1.01], eager_ms=np.nan), TEST)
    (low, high), data = axes(near[0])[1].ends or (0, 0), [measured(1, jit_ms=10.0**k) for k in range(3)]

    assert 0.01e-3 / (high - low) < 0.05
    assert axes(by_parameter(np.concatenate(data), {"n": [1, 10, 100]}, "n", TEST)[0])[1].is_log


def test_zero_bytes_have_a_place() -> None:
    data = np.concatenate([measured(1, jit_temporary_bytes=b, jit_peak_bytes=2**k) for k, b in ((12, 0), (30, 2**28))])

    memory = axes(panel(by_parameter(data, {"n": [1, 2]}, "n", TEST), "memory"))[1]

    assert not memory.is_log
    assert memory.ticks[0].text == "0 B"


# ---- words ------------------------------------------------------------------------------------------------------


def joined(*parts: np.ndarray) -> np.ndarray:
    return np.concatenate(parts)


def changed(data: np.ndarray, row: int, **columns: Any) -> np.ndarray:
    for name, value in columns.items():
        data[name][row] = value
    return data


DOUBTFUL = rows(1, run_id=2, message="it returns something else than eagerly")
FAILED = rows(1, run_id=2, status="timeout", timer="", environment="", jax="")
OF_TWO_COMMITS = joined(measured(1, commit="aaa"), measured(1, commit="bbb+"))
FFTS = in_runs(measured(3, tag="fft"), measured(3, tag="rfft"))
PARTLY = in_runs(measured(2, tag="fft"), rows(2, tag="rfft", status=["ok", "timeout"]))
TESTS = [("t.py::a", measured(1)), ("t.py::b", rows(1, status="timeout")), ("t.py::c", rows(1))]


@pytest.mark.parametrize(
    ("picture", "expected"),
    [
        (history(measured(2), TEST), "2 runs, 1 commit. Run times are medians with 95 % intervals. A compile time is"),
        (history(changed(measured(2), 0, jit_low_ms=np.nan), TEST), "without a bar, of too few samples"),
        (history(measured(30), TEST, most=10), "The last 10 of 30 runs, 1 commit."),
        (history(measured(3, commit="unknown"), TEST), "3 runs, commit unknown."),
        (history(measured(3, commit=["unknown", "a", "b+"]), TEST), "3 runs, 2 commits."),
        (history(FFTS, TEST), "Hollow: eager"),
        (history(PARTLY, TEST), "Failed: rfft (timeout)."),
        (history(rows(2), TEST), "Not measured, because no row of this test holds a number."),
        (
            history(rows(2, status=["error", "ok"]), TEST),
            "Not measured, because 1 of 2 rows failed: error (1 ×).",
        ),
        (
            history(changed(measured(3, timer=["loop", "", "loop"]), 1, environment="", jax=""), TEST),
            "machine and timer unknown",
        ),
        (
            by_parameter(OF_TWO_COMMITS, {"n": [1, 2]}, "n", TEST),
            "The newest run of each, which are not all of one commit: aaa, bbb.",
        ),
        (summary(TESTS), "Failed: b (timeout). Not measured: c."),
    ],
)
def test_what_a_picture_shows_is_said_above_it(picture: Picture, expected: str) -> None:
    assert expected in said(picture)


@pytest.mark.parametrize(("row", "kind"), [(FAILED, "timeout"), (DOUBTFUL, "doubtful result")])
def test_a_failed_row_is_at_the_edge_and_makes_no_line_of_its_own(row: np.ndarray, kind: str) -> None:
    picture = history(joined(measured(2), row), TEST)

    assert failed(picture[0]) == [(f"failed: {kind}", (2,))]
    assert "compared" not in said(picture)


# ---- lines ------------------------------------------------------------------------------------------------------


def test_rows_of_another_machine_timer_or_version_are_another_line() -> None:
    data = measured(5)
    data["timer"][1], data["environment"][2], data["jax"][3] = "in_graph", "ffff0000", "0.9.0"

    picture = history(data, TEST)

    found = {mark.places: mark.symbol for mark in points(picture[0]) if mark.label == "jitted"}
    assert found == {(0, 4): "circle", (1,): "diamond", (2,): "left", (3,): "right"}
    assert "Not all rows can be compared, and lines connect only" in said(picture)
    assert "◆ timer in_graph, environment ab12cd34, jax 0.10.2" in said(picture)


# ---- along runs and commits -----------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["a", "b", "c+", "c"])), min_size=1, max_size=12))
def test_a_commit_is_named_at_its_first_run_and_shares_its_shade_with_no_other(gaps: list[tuple[int, str]]) -> None:
    """Also where a history has gaps and several rows per run."""
    ids, commits = np.cumsum([gap for gap, _ in gaps]).tolist(), [commit.rstrip("+") for _, commit in gaps]
    parts = [measured(len(gaps), run_id=ids, commit=[c for _, c in gaps], tag=tag) for tag in ("fft", "rfft")]

    chart = history(in_runs(*parts), TEST)[0]

    first = [i for i in range(len(ids)) if i == 0 or commits[i] != commits[i - 1]]
    assert [(tick.at, tick.text) for tick in chart.x.ticks] == [(ids[i], f"{ids[i]} · {commits[i]}") for i in first]
    shades = [mark for mark in chart.marks if isinstance(mark, Shade)]
    for k, start in enumerate(first):
        runs = ids[start : (first[k + 1 :] or [len(ids)])[0]]
        assert all(any(s.low < run < s.high for s in shades) is (k % 2 == 1) for run in runs)


def test_commits_stand_side_by_side_with_their_runs_in_order_and_no_line_between_them() -> None:
    data = measured(5, commit=["a", "a+", "b", "a", "c"])

    chart = history(data, TEST, "commit")[0]

    assert [round(at, 2) for at in points(chart)[0].places] == [-0.3, 0.0, 0.3, 1.0, 2.0]
    assert [(tick.at, tick.text) for tick in chart.x.ticks] == [(0, "a"), (1, "b"), (2, "c")]
    assert not any(isinstance(mark, Line) for mark in chart.marks)


def test_of_many_commits_some_are_named() -> None:
    data = measured(250, commit=[f"v0.3-{i}" for i in range(250)])

    assert all(80 <= len(history(data, TEST, axis)[0].x.ticks) <= 125 for axis in ("run", "commit"))


def test_a_row_without_a_jitted_time_stands_with_those_of_its_machine() -> None:
    picture = history(measured(3, jit_ms=[1.0, math.nan, 1.0], timer=["in_graph", "", "in_graph"]), TEST)

    assert {mark.symbol for mark in points(picture[0])} == {"circle"}
    assert "Not all rows" not in said(picture)


# ---- tags -------------------------------------------------------------------------------------------------------


def test_each_tag_has_a_label_of_its_own_in_every_picture() -> None:
    long = in_runs(*(measured(2, tag="x" * 10_000 + end) for end in ("a", "b")))

    assert list(values(history(FFTS, TEST), "run time")) == ["fft", "rfft"]
    assert len(set(names(by_tag(long, TEST)))) == 2
    assert names(summary([("t.py::test_a", measured(2)), ("t.py::test_b", FFTS)])) == [
        "test_a", "test_b · fft", "test_b · rfft",
    ]  # fmt: skip
    assert set(names(over([None, "None", True, "True"]))) == {"None", "'None'", "True", "'True'"}


def test_more_tags_than_colors_have_other_symbols() -> None:
    picture = history(in_runs(*(measured(1, tag=f"tag {i}") for i in range(20))), TEST)

    symbols = {mark.label: mark.symbol for mark in points(picture[0])}
    assert len({(number % 8, symbol) for number, symbol in enumerate(symbols.values())}) == 20


def test_the_picture_of_tags_is_of_the_newest_run() -> None:
    data = np.concatenate([measured(1, tag="gone"), measured(1, run_id=1, tag="a"), measured(1, run_id=1, tag="b")])

    assert names(by_tag(data, TEST)) == ["a", "b"]
    assert (has_tags(data), has_tags(data[:2])) == (True, False)


# ---- parameters -------------------------------------------------------------------------------------------------


def over(values_of_n: list[Any], name: str = "n") -> Picture:
    return by_parameter(np.concatenate([measured(1) for _ in values_of_n]), {name: values_of_n}, name, TEST)


@pytest.mark.parametrize(
    ("given_values", "is_log"),
    [([128, 170, 220, 270], False), ([128, 1024, 8192], True), ([0, 100], False), ([7], False)],
)
def test_numbers_are_an_axis_and_logarithmic_where_they_span_decades(given_values: list[int], is_log: bool) -> None:
    chart = over(given_values)[0]

    assert points(chart)[0].places == tuple(given_values)
    assert (chart.x.is_log, chart.x.are_names) == (is_log, False)
    assert any(isinstance(mark, Line) for mark in chart.marks) is (len(given_values) > 1)


@pytest.mark.parametrize(("given_values", "ticks"), [([128, 256], ["128", "256"]), ([10, 11, 12, 13, 500, 1000], [])])
def test_values_are_ticks_where_their_labels_do_not_overlap(given_values: list[float], ticks: list[str]) -> None:
    assert [tick.text for tick in over(given_values)[0].x.ticks] == ticks


@pytest.mark.parametrize("given_values", [["b", "a"], [1, "one"], [True, False], [None, 3], [float("nan"), 1.0]])
def test_anything_else_is_names_without_a_line(given_values: list[Any]) -> None:
    chart = over(given_values)[0]

    assert (chart.y.are_names, len(chart.y.ticks)) == (True, 2)
    assert not any(isinstance(mark, Line) for mark in chart.marks)


def test_over_a_parameter_stands_the_newest_run_of_each_value() -> None:
    data = np.concatenate([measured(3, jit_ms=[1, 2, 3]), measured(2, jit_ms=[10, 20])])

    picture = by_parameter(data, {"n": [1, 1, 1, 2, 2]}, "n", TEST)

    assert values(picture, "run time")["jitted"] == pytest.approx({1: 3e-3, 2: 20e-3})


def test_another_parameter_and_the_tag_make_a_series_each() -> None:
    """Or the value of one parameter would stand for all values of the others."""
    parts = [measured(1, tag=tag) for _ in range(4) for tag in ("fft", "rfft")]
    both = {"n": [1, 1, 2, 2] * 2, "dtype": ["f32"] * 4 + ["f64"] * 4}

    picture = by_parameter(np.concatenate(parts), both, "n", TEST)

    labels = ["fft, dtype=f32", "rfft, dtype=f32", "fft, dtype=f64", "rfft, dtype=f64"]
    assert list(values(picture, "run time")) == labels


# ---- files of pictures: what matplotlib makes of the charts is tested where they are drawn --------------------------


@pytest.mark.slow
@settings(max_examples=4)
@given(st.text(st.characters(), max_size=30) | st.sampled_from([r"$\frac{", "$", "_hidden", "測試", "-->", "\x00<&"]))
def test_any_tag_and_any_name_can_be_drawn(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "main.svg"
    data = in_runs(measured(2, tag=text, commit=text), measured(2, tag="other"))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        save_charts(history(data, f"t.py::test[{text}]"), path)

    assert ElementTree.parse(path).getroot().tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.slow
@pytest.mark.parametrize(("suffix", "begin"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?xml")])
def test_the_suffix_is_the_format_and_equal_rows_give_equal_files(tmp_path: Path, suffix: str, begin: bytes) -> None:
    files = [tmp_path / "new" / f"{i}.{suffix}" for i in range(2)]
    for file in files:
        save_charts(history(measured(3), TEST), file)

    first, second = (file.read_bytes() for file in files)

    assert first.startswith(begin)
    assert first == second
    assert b"http://fonts" not in first


def test_charts_of_one_picture_are_equally_wide_and_one_below_the_other() -> None:
    figure = draw_together(history(measured(30), TEST))

    figure.draw_without_rendering()
    parts = [part.bbox for part in figure.subfigs]
    assert len(parts) == 3
    assert {(part.x0, part.x1) for part in parts} == {(figure.bbox.x0, figure.bbox.x1)}
    assert all(above.y0 >= below.y1 for above, below in itertools.pairwise(parts))


def test_a_test_without_any_number_has_a_picture_that_says_so(tmp_path: Path) -> None:
    charts = history(rows(2, status="timeout"), TEST)

    save_charts(charts, tmp_path / "main.png")

    assert "Not measured, because 2 of 2 rows failed: timeout (2 ×)." in charts[0].title.replace("\n", " ")
    assert (tmp_path / "main.png").stat().st_size


def test_settings_of_the_user_neither_change_nor_are_changed(tmp_path: Path) -> None:
    """text.usetex would need TeX, and fail."""
    with mpl.rc_context({"text.usetex": True, "figure.facecolor": "black", "font.size": 31}):
        save_charts(history(measured(3), TEST), tmp_path / "theirs.png")

        assert mpl.rcParams["font.size"] == 31
    save_charts(history(measured(3), TEST), tmp_path / "plain.png")
    assert (tmp_path / "theirs.png").read_bytes() == (tmp_path / "plain.png").read_bytes()


# ---- any name becomes one short line, and two names never the same one ----------------------------------------------

ANY = st.text(st.characters())  # with control characters and lone surrogates


@given(ANY, st.integers(8, 60))
def test_a_label_is_one_line_of_printable_characters_and_not_too_long(text: str, longest: int) -> None:
    label = short(text, longest)

    assert len(label) > 0
    assert cell_len(label) <= max(longest, len("(empty)"))
    assert label.isprintable()


@given(st.lists(ANY | st.sampled_from(["x" * 99 + "a" + "y" * 99, "x" * 99 + "b" + "y" * 99]), max_size=20))
def test_labels_side_by_side_are_all_different(texts: list[str]) -> None:
    labels = distinct(texts, 24)

    assert len(set(labels)) == len(texts)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (short(""), "(empty)"),
        (short("a\n b\t c"), "a b c"),
        (short("a\x00b"), "a�b"),
        (short("émile 測"), "émile 測"),
        (short("begin " + "x" * 10_000 + " end", 18), "begin xxx…xxxx end"),
        (sorted(["n-128", "n-16", "b", 3, 20.5, "n-8"], key=natural), [3, 20.5, "b", "n-8", "n-16", "n-128"]),
        (names_of_tests(["tests/a.py::test_1", "tests/a.py::test_2"]), ["test_1", "test_2"]),
        (names_of_tests(["tests/a.py::test_1", "deep/b.py::T::t"]), ["a.py::test_1", "b.py::T::t"]),
        ([as_text(v) for v in (Opaque("function", "jnp.sin"), None, 0.5)], ["jnp.sin", "None", "0.5"]),
    ],
)
def test_names_are_readable_in_a_picture(found: object, expected: object) -> None:
    assert found == expected
