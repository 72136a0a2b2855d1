"""How far something is: who is told what, when it is shown, and what the one display says."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

import pytest
from rich.console import Console

from benchax.errors import UsageError
from benchax.progress import (
    LONGEST_LABEL,
    Bar,
    ProgressEvent,
    describe_rest,
    follow_stages,
    show_progress,
    with_time_left,
)


def event(doing: str, done: int = 0, left_s: float | None = None) -> ProgressEvent:
    return ProgressEvent("f[n=4]", doing, done, 10, left_s)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal would get."""
    written = Terminal()
    monkeypatch.setattr(
        "rich.console.Console", lambda **_: Console(file=written, force_terminal=True, width=100, no_color=True)
    )
    return written


def draw_each(show: Callable[[ProgressEvent], None], screen: io.StringIO, *events: ProgressEvent) -> list[str]:
    """What each event added to the screen."""
    added: list[str] = []
    for each in events:
        before = len(screen.getvalue())
        show(each)
        added.append(screen.getvalue()[before:])
    return added


# ---- who is told -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("progress", ["function", None, False])
def test_elsewhere_nothing_is_shown_that_was_not_asked_for(progress: Any, capsys: pytest.CaptureFixture[str]) -> None:
    told: list[ProgressEvent] = []

    with show_progress(told.append if progress == "function" else progress) as report:
        report(event("run"))
        report(ProgressEvent("a sentence", is_lasting=True))

    assert [each.item for each in told] == (["f[n=4]", "a sentence"] if progress == "function" else [])
    assert capsys.readouterr() == ("", "")


def test_true_gives_a_line_for_each_item_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(True) as report:
        report(ProgressEvent("building main in a worktree"))
        report(ProgressEvent("error: bench_x.py cannot be imported\n  at line 3", is_lasting=True))
        report(event("trace"))
        report(event("compile"))
        report(event("trace", 1))

    lines = [
        "building main in a worktree",
        "error: bench_x.py cannot be imported",
        "  at line 3",
        "1/10 f[n=4]",
        "2/10 f[n=4]",
    ]
    assert capsys.readouterr().err.splitlines() == lines


@pytest.mark.parametrize("progress", ["yes", 1, [], 0])
def test_anything_else_is_refused(progress: object) -> None:
    with pytest.raises(UsageError) as error, show_progress(progress):  # type: ignore[arg-type]
        pass

    assert str(error.value) == (
        f"invalid progress={progress!r}\nexpected a function of a ProgressEvent, True, False or None"
    )


# ---- when it is shown --------------------------------------------------------------------------------------------


def test_at_a_terminal_it_is_shown_after_two_seconds_when_something_begins(screen: io.StringIO) -> None:
    """Not between two samples of one timer: the first drawing imports rich."""
    now = iter([0.0, 0.1, 1.9, 2.5, 2.6, 2.9])
    with redirect_stderr(Terminal()), show_progress(None, clock=lambda: next(now)) as report:
        texts = draw_each(
            report, screen, event("trace"), event("wall"), event("wall"), event("wall", 1), event("loop", 1)
        )

    assert ["f[n=4]" in text for text in texts] == [False, False, False, False, True]


def test_a_bar_leaves_stdout_as_the_caller_put_it(screen: io.StringIO) -> None:
    """Rich puts back what it found, which must not be what a caller had put there for a while."""
    before, aside = sys.stdout, io.StringIO()

    with redirect_stderr(Terminal()), show_progress(True) as report:
        with redirect_stdout(aside):
            report(event("trace"))
            sys.stdout.write("printed by the function\n")
        report(event("compile"))

    assert sys.stdout is before
    assert aside.getvalue() == "printed by the function\n"


def test_results_on_stdout_keep_a_bar_away(screen: io.StringIO) -> None:
    with redirect_stderr(Terminal()) as stderr, show_progress(True, has_bar=False) as report:
        report(event("trace"))

    assert (screen.getvalue(), stderr.getvalue()) == ("", "1/10 f[n=4]\n")


# ---- what it says ------------------------------------------------------------------------------------------------


@pytest.fixture
def bar(screen: io.StringIO) -> Iterator[Bar]:
    """Its clock stands still."""
    with Bar(0.0, lambda: 0.0) as found:
        yield found


def test_it_shows_the_item_its_place_the_stage_and_the_time_left(bar: Bar, screen: io.StringIO) -> None:
    (text,) = draw_each(bar.show, screen, event("run", 2, left_s=200))

    assert "3/10 f[n=4]" in text
    assert "run, about 3 min left" in text


def test_the_time_left_is_guessed_from_the_items_that_have_ended() -> None:
    assert with_time_left(event("run", 2), 30.0).left_s == 120.0
    assert with_time_left(event("run", 2, left_s=5.0), 30.0).left_s == 5.0
    assert with_time_left(event("run", 0), 30.0).left_s is None
    assert with_time_left(event("run", 2), 1.0).left_s is None
    assert with_time_left(ProgressEvent("f"), 30.0).left_s is None


def test_what_has_ended_stands_above_the_line(screen: io.StringIO) -> None:
    ended: list[str] = []
    with redirect_stderr(Terminal()), show_progress(True, results=lambda: ended, clock=lambda: 0.0) as report:
        (before,) = draw_each(report, screen, event("run"))
        ended.append("f[n=2]  3.00 ms")
        (after,) = draw_each(report, screen, event("trace", 1))

    assert "3.00 ms" not in before
    assert after.index("f[n=2]  3.00 ms") < after.index("2/10 f[n=4]")


def test_a_line_about_what_has_ended_stays_above_the_bar_and_is_a_line_in_a_pipe(
    screen: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = ProgressEvent("fft", ended="fft  +3.2 %  slower")

    with redirect_stderr(Terminal()), show_progress(True, clock=lambda: 0.0) as report:
        report(ended)
        (text,) = draw_each(report, screen, event("wall"))
    with show_progress(True) as report:
        report(ended)

    assert text.index("fft  +3.2 %  slower") < text.index("f[n=4]")
    assert capsys.readouterr().err == "fft  +3.2 %  slower\n"


def test_where_the_end_is_not_known_there_is_neither_a_place_nor_a_share(bar: Bar, screen: io.StringIO) -> None:
    (text,) = draw_each(bar.show, screen, ProgressEvent("process 3: 2 of 4 undecided", "fft[n=8] · rounds"))

    assert "process 3: 2 of 4 undecided fft[n=8] · rounds" in text
    assert "━" not in text


def test_what_hangs_is_what_is_shown(bar: Bar, screen: io.StringIO) -> None:
    """However soon after the last drawing it began."""
    texts = draw_each(bar.show, screen, event("run", 0), event("trace", 1), event("compile", 1), event("compile", 1))

    assert ["2/10" in text for text in texts] == [False, True, True, False]


def test_within_a_stage_it_is_drawn_ten_times_a_second_at_most(screen: io.StringIO) -> None:
    now = iter([0.0, 0.0, 0.05, 0.12, 0.2, 0.23])
    with Bar(0.0, lambda: next(now)) as bar:
        texts = draw_each(bar.show, screen, *[event("run")] * 5)

    assert [bool(text) for text in texts] == [True, False, True, False, True]


def test_a_sentence_that_lasts_stays_above_the_line(bar: Bar, screen: io.StringIO) -> None:
    bar.show(ProgressEvent("note: [n] is no benchmark", is_lasting=True))

    assert "note: [n] is no benchmark\n" in screen.getvalue()


def test_stages_of_the_engine_are_parts_of_a_case() -> None:
    told: list[ProgressEvent] = []
    progress = follow_stages(told.append, "f", done=1, total=3)

    for stage, share in (("inputs", 0.0), ("wall", 0.5), ("memory", 0.0)):
        progress(stage, share)

    assert [(each.label, each.doing) for each in told] == [("2/3 f", "inputs"), ("2/3 f", "wall"), ("2/3 f", "memory")]
    assert 1 == told[0].done < told[1].done < told[2].done < 2


@pytest.mark.parametrize(
    ("left_s", "text"),
    [(None, "run"), (0.2, "run, about 1 s left"), (42.4, "run, about 42 s left"), (600, "10 min left")],
)
def test_the_time_left_is_told_in_round_words_and_the_most_that_it_can_take_is_called_so(
    left_s: float | None, text: str
) -> None:
    assert describe_rest(event("run", left_s=left_s)).endswith(text)
    assert describe_rest(ProgressEvent("f", "rounds", left_s=12.0, is_most=True)) == "rounds, at most 12 s left"


def test_long_labels_are_one_short_line(screen: io.StringIO) -> None:
    with Bar(0.0) as bar:
        (drawn,) = draw_each(bar.show, screen, ProgressEvent("f\n" * 500))

    assert "f " * (LONGEST_LABEL // 2 - 1) + "f…" in drawn
