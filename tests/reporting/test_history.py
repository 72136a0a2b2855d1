"""Histories in words: bars that do not make mountains of noise, tables, a sentence for each change."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from comparisons_by_hand import BASELINE, CASE, HOST, commit_of, compared, counted, series, stepping
from matplotlib.backends.backend_agg import FigureCanvasAgg

from benchax.comparing.history import History, history
from benchax.model import CaseId, Comparison, Numerics, Version
from benchax.reporting import terminal
from benchax.reporting.document import BARS, Document
from benchax.reporting.figures import COLORS
from benchax.reporting.history import MOST_NAMES, describe_changes, document, figure, grid, overview, sparkline

ELSEWHERE = replace(HOST, host="node-18")


def sentences(h: History) -> list[str]:
    return [sentence for sentence, _ in describe_changes(h)]


def elsewhere(listed: list[Comparison], first: int) -> list[Comparison]:
    """On another machine from there on."""
    return [*listed[:first], *(replace(c, environment=ELSEWHERE) for c in listed[first:])]


@pytest.mark.parametrize(
    ("listed", "longest", "bars"),
    [
        (series([1.0, 1.1, 1.2, 1.5, 2.0]), 60, "▁▂▃▅█"),
        (elsewhere(series([1.0, 1.0, None, 1.0]), 1), 60, "▅┊▅·▅"),
        (series([9.0] * 5 + [1.0, 2.0]), 2, "▁█"),
        ([counted(0, 0.0), counted(1, 8.0)], 60, "▁▄"),
        ([counted(0, 0.0)], 60, "▁"),
        ([counted(0, None)], 60, "·"),
    ],
    ids=["rising", "another machine and a missing number", "the newest", "from nothing", "nothing", "no number"],
)
def test_bars_rise_with_the_ratio(listed: list[Comparison], longest: int, bars: str) -> None:
    assert sparkline(history(listed), longest=longest).bars == bars


EVENTFUL = elsewhere(series(stepping([(10, 1.0), (10, 1.12)], sd=0.001)), 15)
EVENTFUL[17] = compared(17, None, why="timeout in compile", environment=ELSEWHERE)
EVENTFUL[18] = replace(EVENTFUL[18], numerics=Numerics("baseline", False, why="out[0] differs"))
SHOWN: dict[str, list[Comparison]] = {
    "a line holds what a comparison says, the newest last": series([1.0, 1.05]),
    "ratios that read the same": series([1.0, 1.0001]),
    "what a call gets done is a rate of its own time then": [
        replace(c, work={"tokens": 8.0}) for c in series([1.0, 2.0])
    ],
    "what happened is next to the comparison where it did": EVENTFUL,
    "counts aren't times": [counted(0, 2.0**20), counted(1, 2.0**21)],
    "nothing measured": series([None]),
    "commits, with uncommitted changes and without": [
        replace(compared(n, 1.0), candidate=Version("now", *version))
        for n, version in enumerate([("0123456789abcdef", False), ("0123456789abcdef", True), ()])
    ],
    "of a long history the newest are listed": series([1.0] * 32),
    "a label of several lines": [compared(0, 1.0, case=replace(CASE, name="one\ntwo"), baseline=BASELINE)],
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_history_is_shown(name: str, snapshot: Any) -> None:
    assert terminal.to_text(document(history(SHOWN[name]))) == snapshot


def test_changes_are_red_and_what_is_missing_is_faint() -> None:
    assert [grid(history(EVENTFUL)).rows[i][0].style for i in (9, 10, 17)] == ["", "bad", "faint"]


def test_noise_is_no_mountain() -> None:
    bars = sparkline(history(series(stepping([(40, 1.0)], sd=0.005)))).bars

    assert set(bars) <= set(BARS[2:6])


def test_the_overview_has_a_line_for_each_case(snapshot: Any) -> None:
    slower = history(series(stepping([(10, 1.0), (10, 1.12)], sd=0.001)))
    other = history([counted(0, 2.0**20)])

    table = overview([slower, other])

    assert terminal.to_text(Document((table,))) == snapshot
    assert [row[0].style for row in table.rows] == ["bad", ""]


SENTENCES: dict[str, list[Comparison]] = {
    "a change with both its commits": series(stepping([(20, 1.0), (20, 1.12), (20, 0.9)], sd=0.001)),
    "a count without a probability": [counted(n, size) for n, size in enumerate([2.0**20, 2.0**21])],
    "many comparisons without a change": series([1.0] * 12),
    "two numbers": series([1.0, None, 1.0]),
    "one number": series([1.0]),
    "one count": [counted(0, 8.0)],
    "no number": series([None]),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_a_change_is_a_sentence_and_that_nothing_was_found_is_said(name: str, snapshot: Any) -> None:
    assert sentences(history(SENTENCES[name])) == snapshot


def test_a_newest_comparison_that_stands_out_is_a_warning() -> None:
    found = history(series([*stepping([(30, 1.0)]), 1.1]))

    newest = commit_of(30)[:8]
    assert list(describe_changes(found))[1] == (
        f"{newest} is 10 % above the median before it: the next comparisons will show", "warning",
    )  # fmt: skip


ODD = "$\\frac$ <b>\n" * 9


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


def test_breaks_say_why_and_their_words_do_not_lie_on_one_another() -> None:
    turns = [replace(c, environment=(HOST, ELSEWHERE)[n % 2]) for n, c in enumerate(series([1.0] * 30))]

    assert words(figure(history(elsewhere(series(stepping([(20, 1.0)])), 10)))) == ["host node-17, then node-18"]
    assert len(words(figure(history(turns)))) <= 4


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
