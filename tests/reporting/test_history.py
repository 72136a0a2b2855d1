"""Histories in words: bars that do not make mountains of noise, tables, a sentence for each change."""

from __future__ import annotations

from dataclasses import replace

import pytest
from comparisons_by_hand import BASELINE, CASE, HOST, commit_of, compared, counted, series, stepping

from benchax.comparing.history import History, history
from benchax.model import Comparison, Numerics, Version
from benchax.reporting import terminal
from benchax.reporting.document import BARS
from benchax.reporting.history import describe_changes, document, grid, overview, span, sparkline

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


def test_a_line_holds_what_a_comparison_says_the_newest_last() -> None:
    table = grid(history(series([1.0, 1.05])))

    assert table.names == ("when (UTC)", "commit", "change", "verdict", "time then", "remarks")
    assert table.lines[1] == (
        "2026-01-02 03:15", commit_of(1)[:8], "+5.0 % (+4.0 to +6.0 %)", "slower", "10.5 µs", "",
    )  # fmt: skip


def test_what_a_call_gets_done_is_a_rate_of_its_own_time_then() -> None:
    table = grid(history([replace(c, work={"tokens": 8.0}) for c in series([1.0, 2.0])]))

    assert table.names[-2:] == ("tokens/s then", "remarks")
    assert [line[-2] for line in table.lines] == ["800 k", "400 k"]


def test_what_happened_stands_beside_the_comparison_where_it_did() -> None:
    listed = series(stepping([(10, 1.0), (10, 1.12)], sd=0.001))
    listed[15:] = [replace(c, environment=ELSEWHERE) for c in listed[15:]]
    listed[17] = compared(17, None, why="timeout in compile", environment=ELSEWHERE)
    listed[18] = replace(listed[18], numerics=Numerics("baseline", False, why="out[0] differs"))

    table = grid(history(listed))

    assert [(i, line[-1]) for i, line in enumerate(table.lines) if line[-1]] == [
        (10, "from here on 12 % slower"),
        (15, "host node-17, then node-18"),
        (17, "timeout in compile"),
        (18, "outputs differ"),
    ]
    assert table.lines[18][table.names.index("verdict")].startswith("result differs (")
    assert [table.rows[i][0].style for i in (9, 10, 17)] == ["", "bad", "faint"]


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


def test_the_overview_has_a_line_for_each_case() -> None:
    slower = history(series(stepping([(10, 1.0), (10, 1.12)], sd=0.001)))
    other = history([counted(0, 2.0**20)])

    table = overview([slower, other])

    assert table.lines[0][:2] == ("matmul[n=256]", "v1.2")
    assert table.lines[0][-1] == f"12 % slower from {commit_of(10)[:8]} on"
    assert table.lines[1][2:] == ("▅", "1.00 MiB", "same", commit_of(0)[:8], "")
    assert [row[0].style for row in table.rows] == ["bad", ""]


# ---- sentences --------------------------------------------------------------------------------------------------


def test_a_change_is_a_sentence_with_both_its_commits() -> None:
    found = history(series(stepping([(20, 1.0), (20, 1.12), (20, 0.9)], sd=0.001)))

    one, two, three = (commit_of(n)[:8] for n in (20, 19, 40))
    assert sentences(found) == [
        f"from {one} on 12 % slower (p < 0.001); the last before it is {two}",
        f"from {three} on 20 % less time (p < 0.001); the last before it is {commit_of(39)[:8]}",
    ]


def test_a_count_is_a_sentence_without_a_probability() -> None:
    found = history([counted(n, size) for n, size in enumerate([2.0**20, 2.0**21])])

    assert sentences(found) == [
        f"from {commit_of(1)[:8]} on 2.00 MiB in place of 1.00 MiB; the last before it is {commit_of(0)[:8]}"
    ]


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        (series([1.0] * 12), "no change point"),
        (series([1.0, None, 1.0]), "no change point: 2 points can show great changes only"),
        (series([1.0]), "no change point: 1 point can show great changes only"),
        ([counted(0, 8.0)], "no change point"),
        (series([None]), "no comparison has a number: the remarks say why"),
    ],
)
def test_that_nothing_was_found_is_said_with_what_could_have_been(listed: list[Comparison], expected: str) -> None:
    assert sentences(history(listed)) == [expected]


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
        "one two[n=256]",
        "run time against v1.2 · 1 comparison",
    ]
    assert overview([found]).lines[0][0] == "one two[n=256]"
