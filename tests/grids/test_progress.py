"""The bar of a grid: what it says, and when it is drawn."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from benchax.grids.progress import LONGEST_LABEL, Bar, describe_step, truncate
from benchax.grids.running import GridStep


def step(stage: str, done: int = 0, left_s: float | None = None) -> GridStep:
    return GridStep(done, 10, "f[n=4]", stage, 1.0, left_s)


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal would get."""
    written = io.StringIO()
    monkeypatch.setattr(
        "rich.console.Console", lambda **_: Console(file=written, force_terminal=True, width=100, no_color=True)
    )
    return written


def drawn_by(bar: Bar, screen: io.StringIO, *steps: GridStep) -> list[str]:
    """What each step added to the screen."""
    added = []
    for each in steps:
        before = len(screen.getvalue())
        bar.show(each)
        added.append(screen.getvalue()[before:])
    return added


def test_nothing_is_drawn_where_there_is_no_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with Bar() as bar:
        bar.show(step("start"))

    assert capfd.readouterr() == ("", "")


def test_it_shows_the_cell_its_place_the_step_and_the_time_left(screen: io.StringIO) -> None:
    with Bar(True, lambda: 0.0) as bar:
        (text,) = drawn_by(bar, screen, step("run", 2, left_s=200))

    assert "3/10 f[n=4]" in text
    assert "run, about 3 min left" in text


def test_a_cell_that_hangs_is_the_one_that_is_shown(screen: io.StringIO) -> None:
    """However soon after the last drawing it began."""
    with Bar(True, lambda: 0.0) as bar:
        texts = drawn_by(
            bar, screen, step("run", 0), step("start", 1), step("trace", 1), step("compile", 1), step("run", 1)
        )

    assert ["2/10" in text for text in texts] == [False, True, False, True, False]


def test_while_calls_are_timed_it_is_drawn_ten_times_a_second_at_most(screen: io.StringIO) -> None:
    now = iter([0.0, 0.05, 0.12, 0.2, 0.23])
    with Bar(True, lambda: next(now)) as bar:
        texts = drawn_by(bar, screen, *[step("run")] * 5)

    assert [bool(text) for text in texts] == [True, False, True, False, True]


@pytest.mark.parametrize(
    ("left_s", "text"),
    [(None, "run"), (0.2, "run, about 1 s left"), (42.4, "run, about 42 s left"), (600, "10 min left")],
)
def test_the_time_left_is_told_in_round_words(left_s: float | None, text: str) -> None:
    assert describe_step(step("run", left_s=left_s)).endswith(text)


def test_long_labels_are_one_short_line() -> None:
    assert len(truncate("f\n" * 500)) <= LONGEST_LABEL
    assert "\n" not in truncate("f\n" * 500)
