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
from benchax.reporting.history import MOST_NAMES, describe_changes, document, figure, grid, overview, span, sparkline

ELSEWHERE = replace(HOST, host="node-18")


def sentences(h: History) -> list[str]:
    return [sentence for sentence, _ in describe_changes(h)]


def shown(listed: list[Comparison]) -> str:
    return terminal.to_text(document(history(listed)))


# ---- bars -------------------------------------------------------------------------------------------------------


def test_bars_rise_with_the_ratio() -> None:
    assert sparkline(history(series([1.0, 1.1, 1.2, 1.5, 2.0]))) == "▁▂▃▅█"


def test_noise_is_no_mountain() -> None:
    bars = sparkline(history(series(stepping([(40, 1.0)], sd=0.005))))

    assert set(bars) <= set(BARS[2:6])


def test_another_machine_and_a_missing_number_are_marked() -> None:
    listed = series([1.0, 1.0, None, 1.0])
    listed[1:] = [replace(c, environment=ELSEWHERE) for c in listed[1:]]

    assert sparkline(history(listed)) == "▅┊▅·▅"


def test_the_newest_are_shown_where_there_are_too_many() -> None:
    assert sparkline(history(series([9.0] * 5 + [1.0, 2.0])), longest=2) == "▁█"


@pytest.mark.parametrize("sizes", [[0.0, 8.0], [0.0], [None]])
def test_counts_of_nothing_have_bars_too(sizes: list[float | None]) -> None:
    bars = sparkline(history([counted(n, size) for n, size in enumerate(sizes)]))

    assert len(bars) == len(sizes)


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (series([0.98, 1.13]), "0.980 to 1.13 times v1.2"),
        (series([1.0, 1.0001]), "1.00 times v1.2"),
        ([counted(0, 2.0**20), counted(1, 2.0**21)], "1.00 MiB to 2.00 MiB"),
        (series([None]), "nothing measured"),
    ],
)
def test_what_the_bars_span_is_said(listed: list[Comparison], expected: str) -> None:
    assert span(history(listed)) == expected


# ---- tables -----------------------------------------------------------------------------------------------------


def test_a_line_holds_what_a_comparison_says_the_newest_last(snapshot: Any) -> None:
    assert shown(series([1.0, 1.05])) == snapshot


def test_what_a_call_gets_done_is_a_rate_of_its_own_time_then(snapshot: Any) -> None:
    assert shown([replace(c, work={"tokens": 8.0}) for c in series([1.0, 2.0])]) == snapshot


def test_what_happened_is_next_to_the_comparison_where_it_did(snapshot: Any) -> None:
    listed = series(stepping([(10, 1.0), (10, 1.12)], sd=0.001))
    listed[15:] = [replace(c, environment=ELSEWHERE) for c in listed[15:]]
    listed[17] = compared(17, None, why="timeout in compile", environment=ELSEWHERE)
    listed[18] = replace(listed[18], numerics=Numerics("baseline", False, why="out[0] differs"))

    assert shown(listed) == snapshot
    assert [grid(history(listed)).rows[i][0].style for i in (9, 10, 17)] == ["", "bad", "faint"]


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        (Version("now", "0123456789abcdef", False), "01234567"),
        (Version("now", "0123456789abcdef", True), "01234567+"),
        (Version("now"), "now"),
    ],
)
def test_a_commit_is_named_by_its_first_digits(candidate: Version, expected: str) -> None:
    assert grid(history([replace(compared(0, 1.0), candidate=candidate)])).lines[0][1] == expected


def test_of_a_long_history_the_newest_are_listed_and_the_rest_is_not_kept_quiet() -> None:
    text = shown(series(stepping([(100, 1.0)])))

    assert "70 older ones are not listed; --json has them" in text
    assert commit_of(69)[:8] not in text
    assert commit_of(70)[:8] in text


def test_the_overview_has_a_line_for_each_case(snapshot: Any) -> None:
    slower = history(series(stepping([(10, 1.0), (10, 1.12)], sd=0.001)))
    other = history([counted(0, 2.0**20)])

    table = overview([slower, other])

    assert terminal.to_text(Document((table,))) == snapshot
    assert [row[0].style for row in table.rows] == ["bad", ""]


# ---- sentences --------------------------------------------------------------------------------------------------


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


def test_times_are_said_to_be_no_comparison() -> None:
    assert "not to be compared with one another, and not judged" in shown(series([1.0]))
    assert "judged" not in shown([counted(0, 8.0)])


def test_a_label_of_several_lines_is_one_line() -> None:
    found = history([compared(0, 1.0, case=replace(CASE, name="one\ntwo"), baseline=BASELINE)])

    assert terminal.to_text(document(found)).splitlines()[:2] == [
        "one two[n=256]: same, +0 % (-1.0 to +1.0 %)",
        "run time against v1.2 · 1 comparison",
    ]
    assert overview([found]).lines[0][0] == "one two[n=256]"


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
