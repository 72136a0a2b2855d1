"""The figure of a history: what is drawn, and that a hundred commits can be read."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from comparisons_by_hand import HOST, commit_of, compared, counted, series, stepping
from matplotlib.backends.backend_agg import FigureCanvasAgg

from benchax.comparing.history import history
from benchax.model import CaseId, Comparison, Version
from benchax.reporting.figures import COLORS
from benchax.reporting.history import MOST_NAMES, figure

ODD = "$\\frac$ <b>\n" * 9
ELSEWHERE = replace(HOST, host="node-18")


def words(drawn: Any) -> list[str]:
    return [text.get_text() for text in drawn.axes[0].texts]


def names(drawn: Any) -> list[str]:
    return [label.get_text() for label in drawn.axes[0].get_xticklabels()]


def legend(drawn: Any) -> list[str]:
    found = drawn.axes[0].get_legend()
    return [text.get_text() for text in found.get_texts()] if found else []


def is_drawn(drawn: Any) -> bool:
    with io.BytesIO() as buffer:
        drawn.savefig(buffer, format="png", dpi=40)
        return buffer.getvalue().startswith(b"\x89PNG")


def test_changes_are_named_by_commit_and_coloured_by_their_direction() -> None:
    drawn = figure(history(series(stepping([(20, 1.0), (20, 1.12), (20, 0.9)], sd=0.001))))

    assert words(drawn) == [f"{commit_of(20)[:8]}\n12 % slower", f"{commit_of(40)[:8]}\n20 % less time"]
    assert [text.get_color() for text in drawn.axes[0].texts] == [COLORS["bad"], COLORS["good"]]
    assert {commit_of(20)[:8], commit_of(40)[:8]} <= set(names(drawn))
    assert is_drawn(drawn)


def test_breaks_say_why() -> None:
    listed = series(stepping([(20, 1.0)]))
    listed[10:] = [replace(c, environment=ELSEWHERE) for c in listed[10:]]

    assert words(figure(history(listed))) == ["host node-17, then node-18"]


def test_words_of_machines_that_take_turns_do_not_lie_on_one_another() -> None:
    listed = [replace(c, environment=(HOST, ELSEWHERE)[n % 2]) for n, c in enumerate(series([1.0] * 30))]

    assert len(words(figure(history(listed)))) <= 4


def test_a_hundred_commits_are_named_as_far_as_they_can_be_read() -> None:
    drawn = figure(history(series(stepping([(50, 1.0), (50, 1.1)]))))

    found = names(drawn)
    assert len(found) <= MOST_NAMES + 2
    assert {commit_of(n)[:8] for n in (0, 50, 99)} <= set(found)
    assert is_drawn(drawn)
    boxes = [
        label.get_window_extent(FigureCanvasAgg(drawn).get_renderer()) for label in drawn.axes[0].get_xticklabels()
    ]
    assert all(one.x1 <= other.x0 for one, other in pairwise(boxes))


def test_no_interval_hides_the_others() -> None:
    listed = series(stepping([(20, 1.0)]))
    listed[3] = replace(listed[3], high=50.0)

    low, high = figure(history(listed)).axes[0].get_ylim()

    assert 0.8 < low < 1 < high < 1.3


def test_what_is_unclear_or_missing_is_told_apart() -> None:
    listed = [compared(0, 1.0), compared(1, 1.1, verdict="unclear"), compared(2, None)]

    assert legend(figure(history(listed))) == ["clear", "unclear by itself", "not measured"]
    assert legend(figure(history(listed[:1]))) == []


def test_counts_are_named_on_the_axis_themselves() -> None:
    drawn = figure(history([counted(n, size) for n, size in enumerate([2.0**20, 2.0**20, 2.0**21])]))

    assert is_drawn(drawn)
    assert [label.get_text() for label in drawn.axes[0].get_yticklabels()] == ["1.00 MiB", "2.00 MiB"]


@pytest.mark.parametrize(
    "listed",
    [
        series([None]),
        series([1.0]),
        series([1.0, 1.0]),
        [counted(0, 0.0), counted(1, 0.0)],
        [counted(n, float(n)) for n in range(20)],
        [compared(n, 1.0 + n // 9, case=CaseId(ODD), baseline=Version(ODD), candidate=Version(ODD)) for n in range(18)],
    ],
    ids=["failed", "one", "two", "nothing", "many counts", "odd label"],
)
def test_any_history_can_be_drawn(listed: list[Comparison]) -> None:
    assert is_drawn(figure(history(listed)))
