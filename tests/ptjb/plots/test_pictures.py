"""What stands where in a picture, before anything is drawn."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from ptjb_rows import in_runs, measured, rows

from pytest_jax_bench.plots.pictures import PAGE, by_parameter, by_tag, has_tags, history, summary
from pytest_jax_bench.plots.readings import Panel, Picture

TEST = "tests/test_x.py::test_full"


def panel(picture: Picture, title: str) -> Panel:
    return next(p for p in picture.panels if p.title == title)


def values(picture: Picture, title: str) -> dict[str, list[float | None]]:
    return {s.label: [None if np.isnan(v) else float(v) for v in s.value] for s in panel(picture, title).series}


# ---- values -----------------------------------------------------------------------------------------------------


def test_times_are_medians_with_their_intervals_in_seconds() -> None:
    picture = history(measured(2, jit_ms=[1.0, 2.0]), TEST)

    jitted = panel(picture, "run time").series[0]
    assert jitted.value.tolist() == pytest.approx([1e-3, 2e-3])
    assert jitted.low.tolist() == pytest.approx([0.98e-3, 1.96e-3])
    assert jitted.high.tolist() == pytest.approx([1.02e-3, 2.04e-3])


def test_what_was_not_measured_is_a_gap() -> None:
    """-1 bytes, NaN, and the 0.00 ms that pytest-jax-bench writes for anything short, are no values."""
    data = measured(3)
    data["jit_peak_bytes"][1], data["jit_median_ms"][1], data["jit_mean_ms"][1] = -1, np.nan, 0.0

    picture = history(data, TEST)

    assert values(picture, "memory")["jitted, peak"] == [25296896, None, 25296896]
    assert values(picture, "run time")["jitted"] == pytest.approx([1.1e-3, None, 1.1e-3])


def test_columns_without_any_value_are_not_in_the_picture() -> None:
    picture = history(rows(3, jit_median_ms=1.0, jit_temporary_bytes=0), TEST)

    assert [(p.title, [s.label for s in p.series]) for p in picture.panels] == [
        ("run time", ["jitted"]), ("memory", ["jitted, temporary"]),
    ]  # fmt: skip
    assert values(picture, "memory")["jitted, temporary"] == [0, 0, 0]  # measured, and none


def test_constants_are_shown_where_they_matter() -> None:
    few, many = measured(2, jit_constants_bytes=4), measured(2, jit_constants_bytes=2_000_000)

    assert "jitted, constants" not in values(history(few, TEST), "memory")
    assert "jitted, constants" in values(history(many, TEST), "memory")


def test_means_of_older_rows_are_a_series_of_their_own_and_are_explained() -> None:
    data = measured(3)
    for column in ("jit_median_ms", "jit_low_ms", "jit_high_ms"):
        data[column][0] = np.nan

    picture = history(data, TEST)

    medians, means = panel(picture, "run time").series[:2]
    assert (medians.is_mean, np.isfinite(medians.value).tolist()) == (False, [False, True, True])
    assert (means.is_mean, np.isfinite(means.value).tolist()) == (True, [True, False, False])
    assert "+ is a mean with the standard deviation of its samples" in " ".join(picture.notes)


def test_a_median_without_interval_is_explained() -> None:
    data = measured(2)
    data["jit_low_ms"][0] = np.nan

    assert "without a bar, of too few samples" in " ".join(history(data, TEST).notes)
    assert "too few" not in " ".join(history(measured(2), TEST).notes)


def test_in_a_history_eager_does_not_flatten_a_much_faster_jitted_function() -> None:
    near, far = history(measured(2, 1.0, 5.0), TEST), history(measured(2, 0.01, 5.0), TEST)

    assert [p.title for p in near.panels[:2]] == ["run time", "compile time"]
    assert [(p.title, p.is_log) for p in far.panels[:2]] == [("run time, jitted", False), ("run time, eager", False)]


# ---- lines ------------------------------------------------------------------------------------------------------


def test_rows_of_another_machine_timer_or_version_are_another_line() -> None:
    data = measured(5)
    data["timer"][1], data["environment"][2], data["jax"][3] = "in_graph", "ffff0000", "0.9.0"

    picture = history(data, TEST)

    assert picture.lines.tolist() == [0, 1, 2, 3, 0]
    note = next(n for n in picture.notes if n.startswith("Not all rows can be compared, and lines connect only"))
    assert "■ timer in_graph, environment ab12cd34, jax 0.10.2" in note


def test_a_failed_row_makes_no_line_of_its_own() -> None:
    data = np.concatenate([measured(2), rows(1, run_id=2, status="timeout", timer="", environment="", jax="")])

    picture = history(data, TEST)

    assert picture.failures == ("", "", "timeout")
    assert not any("compared" in note for note in picture.notes)


def test_a_row_whose_result_is_doubtful_is_no_good_one() -> None:
    data = np.concatenate([measured(2), rows(1, run_id=2, message="it returns something else than eagerly")])

    assert history(data, TEST).failures == ("", "", "doubtful result")


# ---- along runs and commits ------------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["a", "b", "c+", "c"])), min_size=1, max_size=12))
def test_the_name_of_a_commit_stands_over_its_runs_and_over_no_other(gaps: list[tuple[int, str]]) -> None:
    """Also where a history has gaps and several rows per run."""
    ids, commits = np.cumsum([gap for gap, _ in gaps]), [commit for _, commit in gaps]
    parts = [measured(len(gaps), run_id=ids, commit=commits, tag=tag) for tag in ("fft", "rfft")]

    axis = history(in_runs(*parts), TEST).axis

    for run, commit in zip(ids, commits, strict=True):
        assert [b.label for b in axis.bands if b.low < run < b.high] == [commit.rstrip("+")]
    assert sorted(axis.positions.tolist()) == sorted([*map(float, ids)] * 2)


def test_commits_stand_side_by_side_with_their_runs_in_order_and_no_line_between_them() -> None:
    data = measured(5, commit=["a", "a+", "b", "a", "c"])

    axis = history(data, TEST, "commit").axis

    assert axis.positions.round(2).tolist() == [-0.3, 0.0, 1.0, 0.3, 2.0]
    assert [(b.low, b.high, b.label) for b in axis.bands] == [(-0.5, 0.5, "a"), (0.5, 1.5, "b"), (1.5, 2.5, "c")]
    assert not axis.is_connected


def test_a_row_without_a_jitted_time_stands_with_those_of_its_machine() -> None:
    data = measured(3, jit_ms=[1.0, math.nan, 1.0], timer=["in_graph", "", "in_graph"])

    picture = history(data, TEST)

    assert picture.lines.tolist() == [0, 0, 0]
    assert not any("unknown" in note or "Not all rows" in note for note in picture.notes)


def test_a_row_of_an_unknown_machine_is_named_so() -> None:
    data = measured(3, timer=["in_graph", "", "in_graph"])
    data["environment"][1] = data["jax"][1] = ""

    assert any("machine and timer unknown" in note for note in history(data, TEST).notes)


def test_a_long_history_shows_its_end_and_says_so() -> None:
    picture = history(measured(30), TEST, most=10)

    assert picture.axis.positions.tolist() == list(range(20, 30))
    assert picture.notes[0] == "The last 10 of 30 runs, 1 commit."


def test_without_git_there_is_no_commit_to_count() -> None:
    assert history(measured(3, commit="unknown"), TEST).notes[0] == "3 runs, commit unknown."
    assert history(measured(3, commit=["unknown", "a", "b+"]), TEST).notes[0] == "3 runs, 2 commits."


# ---- tags -------------------------------------------------------------------------------------------------------


def test_tags_share_a_picture_with_one_color_each() -> None:
    picture = history(in_runs(measured(3, tag="fft"), measured(3, tag="rfft")), TEST)

    colors = {s.label: s.color for p in picture.panels for s in p.series}
    assert list(colors) == ["fft", "rfft"]
    assert len(set(colors.values())) == 2
    assert "Hollow: eager" in " ".join(picture.notes)


def test_dozens_of_tags_have_dozens_of_colors() -> None:
    picture = history(in_runs(*(measured(1, tag=f"tag {i}") for i in range(60))), TEST)

    assert len({s.color for s in picture.panels[0].series}) == 60


def test_of_which_tag_a_failure_is_stands_in_a_note() -> None:
    picture = history(in_runs(measured(2, tag="fft"), rows(2, tag="rfft", status=["ok", "timeout"])), TEST)

    assert picture.notes[1] == "Failed: rfft (timeout)."


def test_tags_that_differ_after_ten_thousand_characters_are_told_apart() -> None:
    picture = by_tag(in_runs(*(measured(2, tag="x" * 10_000 + end) for end in ("a", "b"))), TEST)

    assert len({text for _, text in picture.axis.ticks}) == 2


def test_the_picture_of_tags_is_of_the_newest_run() -> None:
    data = np.concatenate([measured(1, tag="gone"), measured(1, run_id=1, tag="a"), measured(1, run_id=1, tag="b")])

    assert [text for _, text in by_tag(data, TEST).axis.ticks] == ["a", "b"]
    assert (has_tags(data), has_tags(data[:2])) == (True, False)


# ---- parameters -------------------------------------------------------------------------------------------------


def over(values_of_n: list[Any], name: str = "n") -> Picture:
    return by_parameter(np.concatenate([measured(1) for _ in values_of_n]), {name: values_of_n}, name, TEST)


@pytest.mark.parametrize(
    ("given_values", "is_log"),
    [([128, 170, 220, 270], False), ([128, 1024, 8192], True), ([0, 100], False), ([7], False)],
)
def test_numbers_are_an_axis_and_logarithmic_where_they_span_decades(given_values: list[int], is_log: bool) -> None:
    axis = over(given_values).axis

    assert axis.positions.tolist() == given_values
    assert (axis.is_log, axis.is_connected, axis.are_names) == (is_log, True, False)


@pytest.mark.parametrize("given_values", [["b", "a"], [1, "one"], [True, False], [None, 3], [float("nan"), 1.0]])
def test_anything_else_is_names_without_a_line(given_values: list[Any]) -> None:
    axis = over(given_values).axis

    assert (axis.is_connected, axis.are_names, len(axis.ticks)) == (False, True, 2)


def test_values_that_read_the_same_are_told_apart() -> None:
    assert {text for _, text in over([None, "None", True, "True"]).axis.ticks} == {"None", "'None'", "True", "'True'"}


def test_over_a_parameter_stands_the_newest_run_of_each_value() -> None:
    data = np.concatenate([measured(3, jit_ms=[1, 2, 3]), measured(2, jit_ms=[10, 20])])

    picture = by_parameter(data, {"n": [1, 1, 1, 2, 2]}, "n", TEST)

    assert values(picture, "run time")["jitted"] == pytest.approx([3e-3, 20e-3])


def test_another_parameter_and_the_tag_make_a_series_each() -> None:
    """Or the value of one parameter would stand for all values of the others."""
    parts = [measured(1, tag=tag) for _ in range(4) for tag in ("fft", "rfft")]
    both = {"n": [1, 1, 2, 2] * 2, "dtype": ["f32"] * 4 + ["f64"] * 4}

    picture = by_parameter(np.concatenate(parts), both, "n", TEST)

    labels = dict.fromkeys(s.label for s in panel(picture, "run time").series)
    assert list(labels) == ["fft, dtype=f32", "rfft, dtype=f32", "fft, dtype=f64", "rfft, dtype=f64"]


def test_runs_that_are_not_of_one_commit_are_said_to_be_so() -> None:
    data = np.concatenate([measured(1, commit="aaa"), measured(1, commit="bbb+")])

    assert by_parameter(data, {"n": [1, 2]}, "n", TEST).notes[0] == (
        "The newest run of each, which are not all of one commit: aaa and bbb."
    )


# ---- summary ----------------------------------------------------------------------------------------------------


def test_the_summary_has_a_line_for_each_test_and_tag() -> None:
    tests = [("t.py::test_a", measured(2)), ("t.py::test_b", in_runs(measured(2, tag="x"), measured(2, tag="y")))]

    (page,) = summary(tests)

    assert [text for _, text in page.axis.ticks] == ["test_a", "test_b · x", "test_b · y"]
    assert page.title == "Summary of 2 tests"


def test_a_long_summary_has_pages() -> None:
    pages = summary([(f"t.py::test_{i}", measured(1)) for i in range(PAGE + 1)])

    assert [len(p.axis.ticks) for p in pages] == [PAGE, 1]
    assert pages[1].title == f"Summary of {PAGE + 1} tests, page 2 of 2"
