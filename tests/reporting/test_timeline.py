"""Memory over time in the table of a profile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from html_reader import Reader

from benchax.reporting import display  # noqa: F401  # what print needs
from benchax.reporting.profile import chart_memory_lines, draw_memory
from benchax.results.profile import Column, LineMemory, Profile, Timeline

MIB = 2**20
STEPS = (0, 0, 8 * MIB, 8 * MIB, 24 * MIB, 24 * MIB, 0, 0)
TIMES_S = tuple(0.01 * i for i in range(len(STEPS)))
ON_CPU = Timeline(
    TIMES_S,
    (1e-4,) * len(STEPS),
    (Column("live_arrays", "cpu:0", STEPS), Column("resident", "", tuple(100 * MIB + size for size in STEPS))),
)


ON_GPU = Timeline(
    (0.0, 0.5),
    (0.001, 0.001),
    (Column("live_arrays", "gpu:0", (1, 1)), Column("in_use", "gpu:0", (5, 7)), Column("peak_in_use", "gpu:0", (9, 9))),
)


def profile(timeline: Timeline) -> Profile:
    return Profile("f", "cpu", (), timeline=timeline)


def test_each_column_is_a_line_with_its_least_its_most_and_when_and_what_was_not_seen_is_said(snapshot: Any) -> None:
    assert str(profile(ON_CPU)) == snapshot


def test_an_allocator_that_speaks_is_shown_and_no_reason_is_made_up(snapshot: Any) -> None:
    assert str(profile(ON_GPU)) == snapshot


def test_a_piece_of_time_without_a_reading_is_no_bar() -> None:
    assert draw_memory((0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 5.0, 5.1), (0, 0, 0, 0, 0, 0, 9, 9)) == "▁··█"


def test_a_peak_of_one_reading_is_not_lost_among_many() -> None:
    sizes = [0] * 1000
    sizes[777] = 9

    assert draw_memory(range(1000), sizes).count("█") == 1


def test_noise_does_not_look_like_mountains() -> None:
    assert set(draw_memory(range(100), [10_000 + i % 3 for i in range(100)])) == {"▁"}


def test_no_reading_at_all_is_not_measured(snapshot: Any) -> None:
    assert str(profile(Timeline((), (), (), "RuntimeError: no"))) == snapshot


def test_of_many_devices_a_few_are_shown_and_the_others_counted(snapshot: Any) -> None:
    columns = tuple(Column("live_arrays", f"cpu:{i}", (1, 2)) for i in range(9))

    assert str(profile(Timeline((0.0, 1.0), (0.0, 0.0), columns))) == snapshot


def test_a_notebook_shows_it_too() -> None:
    texts = Reader(Profile("f", "cpu", (), timeline=ON_CPU)._repr_html_() or "").texts

    at = texts.index("live arrays cpu:0")
    assert texts[at + 1] == "▁▃█▁"


MADE = replace(
    ON_CPU,
    lines=(
        LineMemory("/home/me/train.py:12", (0, None, 8 * MIB, None, 24 * MIB, None, None, MIB)),
        LineMemory("(none of yours)", (0, None, 0, None, 0, None, None, 0)),
    ),
)


def test_lines_that_made_arrays_have_what_they_hold_at_most_and_at_the_end(snapshot: Any) -> None:
    assert str(profile(MADE)) == snapshot


def test_a_chart_of_lines_has_only_what_was_read() -> None:
    first, _ = chart_memory_lines(MADE).marks

    assert (first.label, len(first.x)) == ("train.py:12", 4)
