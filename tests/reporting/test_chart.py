"""Charts are plain data, which any renderer can draw; and what matplotlib makes of them."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace
from typing import Any

import pytest
from comparisons_by_hand import compared, series

from benchax.comparing.history import history
from benchax.comparing.ranking import Comparisons
from benchax.reporting import comparisons, figures
from benchax.reporting import history as history_document
from benchax.reporting.document import (
    Axis,
    AxisTick,
    Cells,
    Chart,
    Line,
    Points,
    Quantity,
    ReferenceLine,
    describe_value,
    name_places,
)
from benchax.reporting.figures import MOST_NUMBERS


def heat_map(rows: list[str], columns: list[str], squares: list[list[float | str]]) -> Chart:
    """A time in each square, or a word for its absence."""
    values = tuple(tuple(None if isinstance(one, str) else one for one in line) for line in squares)
    words = tuple(tuple(one if isinstance(one, str) else "" for one in line) for line in squares)
    styles = tuple(tuple("warning" if word else "" for word in line) for line in words)
    return Chart(name_places(columns), name_places(rows), (Cells(values, words, styles),))


HISTORY = history([*series([1.0, 1.1]), compared(2, None)])
CHARTS = {
    "history": history_document.chart(HISTORY),
    "comparisons": comparisons.chart(Comparisons((compared(0, 1.0), compared(1, None)))),
    "heat map": heat_map(["f"], ["8"], [["timeout"]]),
}


@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_a_chart_is_plain_data_that_a_page_can_be_given(chart: Chart) -> None:
    assert json.loads(json.dumps(asdict(chart), allow_nan=False))["marks"]


def test_what_was_not_measured_is_no_number_anywhere() -> None:
    (missing,) = [m for m in CHARTS["history"].marks if isinstance(m, Points) and m.label == "not measured"]

    assert (missing.places, missing.values) == ((2,), (None,))


def test_an_interval_that_goes_on_beyond_the_axis_ends_in_an_arrow() -> None:
    inside = Chart(Axis(), Axis(ends=(0.0, 2.0)), (Points((0,), (1.0,), (0.5,), (1.5,)),))
    beyond = replace(inside, marks=(Points((0,), (1.0,), (0.5,), (9.0,)),))

    arrows = [[x.get_marker() for x in figures.draw(c).axes[0].lines if "rrow" in x.get_marker() or "$" in
               x.get_marker()] for c in (inside, beyond)]  # fmt: skip
    assert arrows == [[], ["$↑$"]]


def test_a_legend_names_every_series_whatever_its_name() -> None:
    """matplotlib leaves out what begins with an underscore, and reads dollars as formulas."""
    marks = tuple(Points((0,), (1.0,), label=name) for name in ("_step", r"$\frac{$", "g"))

    drawn = figures.draw(Chart(Axis(), Axis(), marks, has_series=True))

    drawn.draw_without_rendering()
    assert [text.get_text() for text in drawn.axes[0].get_legend().get_texts()] == [" _step", r"\$\frac{\$", "g"]


def test_a_series_over_sizes_has_logarithmic_axes_in_words_and_a_limit() -> None:
    """Of a log-log chart: its ticks read as times, not as powers of ten."""
    chart = Chart(
        Axis("n", is_log=True, ticks=(AxisTick(128, "128"), AxisTick(1024, "1024"))),
        Axis("time per call", "seconds", is_log=True),
        (Line((128, 1024), (2e-6, 90e-6)), ReferenceLine("y", 1e-3, style="faint")),
    )

    axes = figures.draw(chart).axes[0]

    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert axes.yaxis.get_major_formatter()(2e-5, 0) == "20.0 µs"


@pytest.mark.parametrize(
    ("value", "quantity", "text"),
    [(2e-5, "seconds", "20.0 µs"), (2.0**20, "bytes", "1.00 MiB"), (2e9, "flop", "2.00 GFLOP"),
     (1.05, "change", "+5 %"), (0.9, "change", "-10 %"), (1.0, "change", "0 %"), (1500, "", "1.50 k")],
)  # fmt: skip
def test_a_number_of_an_axis_reads_as_what_it_is(value: float, quantity: Quantity, text: str) -> None:
    assert describe_value(value, quantity) == text


def words(drawn: Any) -> list[str]:
    return [text.get_text() for text in drawn.axes[0].texts]


def png(drawn: Any) -> bytes:
    with io.BytesIO() as buffer:
        drawn.savefig(buffer, format="png", dpi=40)
        return buffer.getvalue()


def test_each_square_shows_its_number_with_its_unit_or_its_status_without_a_colour_of_the_scale() -> None:
    """Dollars in a name are no formula, and long names are cut."""
    drawn = figures.draw(heat_map([r"a$\frac$", "f" * 500], [r"b$\x$", "8"], [[2.5e-6, "wrong shape"]] * 2))

    assert words(drawn) == ["2.50\nµs", "wrong\nshape"] * 2
    assert drawn.axes[0].images[0].get_array().mask.tolist() == [[False, True]] * 2
    assert (drawn.axes[0].images[1].get_array()[..., -1] > 0).tolist() == [[False, True]] * 2
    assert len(drawn.axes[0].get_yticklabels()[1].get_text()) < 40
    assert png(drawn)


@pytest.mark.parametrize("values", [[None, None], [1e-6, 1e-6], [0.0, 1e-6], [1e-9, 1e4]])
def test_any_times_can_be_drawn(values: list[float | None]) -> None:
    assert png(figures.draw(heat_map(["f"], ["a", "b"], [["not run" if v is None else v for v in values]])))


def test_times_that_are_nearly_equal_do_not_look_like_day_and_night() -> None:
    norm = figures.draw(heat_map(["f"], ["a", "b"], [[1.00e-6, 1.01e-6]])).axes[0].images[0].norm

    assert norm(1.01e-6) - norm(1.00e-6) < 0.05


def test_forty_by_twenty_still_shows_every_number() -> None:
    squares: list[list[float | str]] = [[1e-6 * (i + j + 1) for j in range(40)] for i in range(20)]

    drawn = figures.draw(heat_map([f"function_{i}" for i in range(20)], [str(j) for j in range(40)], squares))

    assert len(words(drawn)) == 800
    assert drawn.get_size_inches()[0] <= 40


@pytest.mark.slow
def test_ten_thousand_squares_are_one_picture_with_a_legend() -> None:
    squares: list[list[float | str]] = [["timeout" if i % 2 else 1e-6 for _ in range(100)] for i in range(100)]

    drawn = figures.draw(heat_map([f"f{i}" for i in range(100)], [str(j) for j in range(100)], squares))

    assert MOST_NUMBERS < 100 * 100
    assert words(drawn) == []
    assert [text.get_text() for text in drawn.axes[0].get_legend().get_texts()] == ["timeout"]
    assert png(drawn)
