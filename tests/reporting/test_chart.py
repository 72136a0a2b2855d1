"""Charts are plain data, which any renderer can draw; and what matplotlib makes of them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from comparisons_by_hand import compared, series

from benchax.comparing.history import history
from benchax.comparing.ranking import Comparisons
from benchax.reporting import comparisons, figures
from benchax.reporting import history as history_document
from benchax.reporting.chart import (
    Axis,
    AxisTick,
    Chart,
    Line,
    Points,
    Quantity,
    ReferenceLine,
    Square,
    chart_heat_map,
    describe_value,
)

HISTORY = history([*series([1.0, 1.1]), compared(2, None)])
CHARTS = {
    "history": history_document.chart(HISTORY),
    "comparisons": comparisons.chart(Comparisons((compared(0, 1.0), compared(1, None)))),
    "heat map": chart_heat_map(["f"], ["8"], [[Square(None, "timeout")]], x_title="n", title="f"),
}


@pytest.mark.parametrize("chart", CHARTS.values(), ids=CHARTS)
def test_a_chart_is_plain_data_that_a_page_can_be_given(chart: Chart) -> None:
    assert json.loads(json.dumps(asdict(chart), allow_nan=False))["marks"]


def test_what_was_not_measured_is_no_number_anywhere() -> None:
    (missing,) = [m for m in CHARTS["history"].marks if isinstance(m, Points) and m.label == "not measured"]

    assert (missing.places, missing.values) == ((2,), (None,))


def test_an_interval_that_goes_on_beyond_the_axis_ends_in_an_arrow() -> None:
    inside = Chart(Axis(), Axis(ends=(0.0, 2.0)), (Points((0,), (1.0,), ((0.5, 1.5),)),))
    beyond = replace(inside, marks=(Points((0,), (1.0,), ((0.5, 9.0),)),))

    arrows = [[x.get_marker() for x in figures.draw(c).axes[0].lines if "rrow" in x.get_marker() or "$" in
               x.get_marker()] for c in (inside, beyond)]  # fmt: skip
    assert arrows == [[], ["$↑$"]]


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
