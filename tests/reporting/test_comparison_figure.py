"""The figure of comparisons: every line says its verdict in words, and nothing is drawn for what was not measured."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from comparisons_by_hand import compared
from hypothesis import given, settings
from hypothesis import strategies as st

from benchax.comparing.ranking import Comparisons
from benchax.errors import UsageError
from benchax.model import CaseId, Comparison, Numerics, Version
from benchax.reporting import (
    comparisons,
    display,  # noqa: F401  # what plot needs
)
from benchax.reporting.chart import Shade
from benchax.reporting.comparisons import LOOKS, MOST_WORDS, change_name, chart, figure, ticks
from benchax.reporting.figures import SYMBOLS


def version(label: str, ratio: float | None, **changed: Any) -> Comparison:
    return replace(compared(0, ratio, **changed), candidate=Version(label), baseline=Version("naive"))


def suite(count: int) -> Comparisons:
    cases = [CaseId("matmul", (("n", n),)) for n in range(count)]
    return Comparisons(tuple(compared(1, 1 + 0.001 * n, case=case) for n, case in enumerate(cases)))


def drawn_as(drawn: Any, kind: str) -> bytes:
    with io.BytesIO() as buffer:
        drawn.savefig(buffer, format=kind, dpi=40)
        return buffer.getvalue()


def names(drawn: Any) -> list[str]:
    return [label.get_text() for label in drawn.axes[0].get_yticklabels()]


def words(drawn: Any) -> list[str]:
    (beside,) = drawn.axes[0].child_axes
    return [label.get_text() for label in beside.get_yticklabels()]


def markers(drawn: Any) -> list[Any]:
    return [line for line in drawn.axes[0].lines if line.get_marker() in {SYMBOLS[mark] for _, mark in LOOKS.values()}]


def test_versions_of_one_case_are_named_by_their_labels() -> None:
    drawn = Comparisons((version("fused", 0.8), version("copy", 1.0))).plot()

    assert names(drawn) == ["fused", "copy"]
    assert words(drawn) == ["faster  -20 % (-21 to -19 %)", "same  +0 % (-1.0 to +1.0 %)"]
    assert drawn.axes[0].get_title(loc="left").splitlines()[0] == "matmul[n=256]: run time against naive"
    assert drawn_as(drawn, "png")


def test_the_figure_says_which_way_is_faster_where_it_was_measured_and_by_which_timer() -> None:
    drawn = Comparisons((version("fused", 0.8), version("copy", 1.0))).plot()

    assert drawn.axes[0].get_xlabel() == "← faster    time as that of naive    slower →   (grey: same, within 5.0 %)"
    title = drawn.axes[0].get_title(loc="left")
    assert comparisons.heading(Comparisons((version("fused", 0.8), version("copy", 1.0)))) in title
    assert "wall, paired" in title


def test_cases_are_named_by_their_parameters() -> None:
    drawn = suite(40).plot()

    assert names(drawn)[:2] == ["matmul[n=0]", "matmul[n=1]"]
    assert drawn.axes[0].get_title(loc="left").splitlines()[0] == "run time of now against v1.2"
    assert len(words(drawn)) == 40


def test_more_lines_than_words_fit_beside_have_a_legend() -> None:
    drawn = suite(MOST_WORDS + 1).plot()

    assert drawn.axes[0].child_axes == []
    assert {text.get_text() for text in drawn.axes[0].get_legend().get_texts()} == {"same", "slower"}


def test_each_verdict_has_a_mark_of_its_own() -> None:
    """Not everybody sees the colours."""
    assert len({mark for _, mark in LOOKS.values()}) == len(LOOKS)

    drawn = figure(Comparisons(tuple(version(v, 1.1, verdict=v) for v in LOOKS)))

    assert [m.get_marker() for m in markers(drawn)] == [SYMBOLS[mark] for _, mark in LOOKS.values()]


def test_what_counts_as_the_same_is_shaded_where_that_is_one_thing() -> None:
    one, finer = version("a", 1.0), replace(version("b", 1.0), resolution=0.01)

    shaded = [[m for m in chart(Comparisons(runs)).marks if isinstance(m, Shade)] for runs in ((one,), (one, finer))]

    assert shaded == [[Shade("x", 1 / 1.05, 1.05)], []]


def test_what_was_not_measured_has_no_mark() -> None:
    drawn = figure(Comparisons((version("broken", None), version("copy", 1.0))))

    assert [list(marker.get_ydata()) for marker in markers(drawn)] == [[1]]
    assert [text.get_text() for text in drawn.axes[0].texts] == ["not measured"]
    assert words(drawn)[0] == "unclear"


def test_who_gives_another_result_is_not_merely_faster() -> None:
    wrong = replace(version("wrong", 0.8), numerics=Numerics("baseline", agrees=False))
    right = replace(version("right", 0.8), numerics=Numerics("baseline", agrees=True))

    drawn = Comparisons((wrong, right)).plot()

    assert [text.startswith("result differs (faster)") for text in words(drawn)] == [True, False]


def test_one_wild_interval_does_not_squeeze_the_others() -> None:
    drawn = figure(Comparisons((version("a", 1.05), version("b", 1.0, low=1e-9, high=1e9, verdict="unclear"))))

    low, high = drawn.axes[0].get_xlim()
    assert 0.2 < low < 1 < high < 5


def test_big_factors_are_not_told_in_per_cent() -> None:
    """-100 % would be a time of zero."""
    drawn = figure(Comparisons((version("a", 0.001, low=0.0009, high=0.0011), version("b", 40.0))))

    assert words(drawn) == ["faster  × 0.00100 (0.000900 – 0.00110)", "slower  × 40.0 (39.6 – 40.4)"]


def test_names_are_no_formulas_and_keep_their_ends() -> None:
    drawn = figure(Comparisons((version(r"$\frac$", 1.0), version("v" * 100 + "[n=7]", 1.0))))

    assert names(drawn)[1].endswith("v[n=7]")
    assert len(names(drawn)[1]) < 50
    assert drawn_as(drawn, "svg")


def test_without_run_times_there_is_nothing_to_draw() -> None:
    with pytest.raises(UsageError, match="nothing to draw"):
        Comparisons((compared(0, 1.0, metric="compile"),)).plot()


@given(st.floats(1e-6, 1 / 1.1), st.floats(1.1, 1e6))
def test_one_is_marked_on_every_axis_and_no_mark_twice(low: float, high: float) -> None:
    places = ticks(low, high)

    named = [change_name(place) for place in places]
    assert "1" in named
    assert len(set(named)) == len(named) <= 20
    assert all(low <= place <= high for place in places)


@settings(max_examples=5)
@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=4))
def test_any_ratios_can_be_drawn(ratios: list[float]) -> None:
    assert drawn_as(figure(Comparisons(tuple(version(str(i), r) for i, r in enumerate(ratios)))), "png")
