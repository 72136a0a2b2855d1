"""The heat map: readable numbers, statuses told by word, nothing drawn for what was not measured."""

from __future__ import annotations

import io
from typing import Any

import pytest

from benchax.reporting import figures
from benchax.reporting.chart import Square
from benchax.reporting.chart import chart_heat_map as chart
from benchax.reporting.figures import MOST_NUMBERS


def figure(rows: list[str], columns: list[str], squares: list[list[Square]]) -> Any:
    return figures.draw(chart(rows, columns, squares))


def words(drawn: Any) -> list[str]:
    return [text.get_text() for text in drawn.axes[0].texts]


def png(drawn: Any) -> bytes:
    with io.BytesIO() as buffer:
        drawn.savefig(buffer, format="png", dpi=40)
        return buffer.getvalue()


def test_each_square_shows_its_number_with_its_unit_or_its_status() -> None:
    drawn = figure(["f"], ["4", "8"], [[Square(2.5e-6), Square(None, "wrong_shape")]])

    assert words(drawn) == ["2.50\nµs", "wrong\nshape"]
    assert png(drawn)


def test_what_was_not_measured_has_no_colour_of_the_scale() -> None:
    drawn = figure(["f"], ["4", "8"], [[Square(1e-3), Square(None, "timeout")]])

    image = drawn.axes[0].images[0].get_array()
    assert image.mask.tolist() == [[False, True]]
    assert len(drawn.axes[0].patches) == 1


@pytest.mark.parametrize("values", [[None, None], [1e-6, 1e-6], [0.0, 1e-6], [1e-9, 1e4]])
def test_any_times_can_be_drawn(values: list[float | None]) -> None:
    assert png(figure(["f"], ["a", "b"], [[Square(v, "ok" if v is not None else "not_run") for v in values]]))


def test_times_that_are_nearly_equal_do_not_look_like_day_and_night() -> None:
    norm = figure(["f"], ["a", "b"], [[Square(1.00e-6), Square(1.01e-6)]]).axes[0].images[0].norm

    assert norm(1.01e-6) - norm(1.00e-6) < 0.05


def test_forty_by_twenty_still_shows_every_number() -> None:
    squares = [[Square(1e-6 * (i + j + 1)) for j in range(40)] for i in range(20)]

    drawn = figure([f"function_{i}" for i in range(20)], [str(j) for j in range(40)], squares)

    assert len(words(drawn)) == 800
    assert drawn.get_size_inches()[0] <= 40


@pytest.mark.slow
def test_ten_thousand_squares_are_one_picture_with_a_legend() -> None:
    squares = [[Square(None, "timeout") if i % 2 else Square(1e-6) for _ in range(100)] for i in range(100)]

    drawn = figure([f"f{i}" for i in range(100)], [str(j) for j in range(100)], squares)

    assert MOST_NUMBERS < 100 * 100
    assert words(drawn) == []
    assert len(drawn.axes[0].patches) == 0
    assert [text.get_text() for text in drawn.axes[0].get_legend().get_texts()] == ["timeout"]
    assert png(drawn)


def test_dollars_in_a_name_are_no_formula() -> None:
    drawn = figure([r"a$\frac$"], [r"b$\x$"], [[Square(1.0)]])

    assert png(drawn)


def test_long_names_are_shortened() -> None:
    drawn = figure(["f" * 500], ["d" * 500], [[Square(1.0)]])

    assert len(drawn.axes[0].get_yticklabels()[0].get_text()) < 40
    assert png(drawn)
