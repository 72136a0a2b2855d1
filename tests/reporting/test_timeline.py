"""Memory over time in the table of a profile."""

from __future__ import annotations

from dataclasses import replace

from html_reader import Reader

from benchax.reporting import display  # noqa: F401  # what print needs
from benchax.reporting.profile import draw_memory
from benchax.reporting.profile_charts import chart_memory_lines
from benchax.results.profile import Column, LineMemory, Profile, Timeline

MIB = 2**20
STEPS = (0, 0, 8 * MIB, 8 * MIB, 24 * MIB, 24 * MIB, 0, 0)
TIMES_S = tuple(0.01 * i for i in range(len(STEPS)))
ON_CPU = Timeline(
    TIMES_S,
    (1e-4,) * len(STEPS),
    (Column("live_arrays", "cpu:0", STEPS), Column("resident", "", tuple(100 * MIB + size for size in STEPS))),
)


def shown(timeline: Timeline) -> str:
    return " ".join(str(Profile("f", "cpu", (), timeline=timeline)).split())


def test_each_column_is_a_line_with_its_least_its_most_and_when() -> None:
    said = shown(ON_CPU)

    assert "live arrays cpu:0 ▁▃█▁ 0 B to 24.0 MiB, most at 40.0 ms" in said
    assert "resident ▁▃█▁ 100 MiB to 124 MiB, most at 40.0 ms, with what the profiler records" in said


def test_what_could_not_be_seen_is_said() -> None:
    said = shown(ON_CPU)

    assert "readings 8, 10.0 ms apart, at most 10.0 ms they took 1.0 % of the time" in said
    assert "in use not available on this backend because memory_stats() of cpu:0 is empty" in said
    assert "not seen peaks between two readings temporaries of programs are in 'resident' only" in said


def test_an_allocator_that_speaks_is_shown_and_no_reason_is_made_up() -> None:
    columns = (
        Column("live_arrays", "gpu:0", (1, 1)),
        Column("in_use", "gpu:0", (5, 7)),
        Column("peak_in_use", "gpu:0", (9, 9)),
    )

    said = shown(Timeline((0.0, 0.5), (0.001, 0.001), columns))

    assert "in use gpu:0 █ 5 B to 7 B, most at 500 ms" in said
    assert "peak in use gpu:0 ▁ 9 B since the process began" in said
    assert "not available" not in said


def test_a_piece_of_time_without_a_reading_is_no_bar() -> None:
    assert draw_memory((0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 5.0, 5.1), (0, 0, 0, 0, 0, 0, 9, 9)) == "▁··█"


def test_a_peak_of_one_reading_is_not_lost_among_many() -> None:
    sizes = [0] * 1000
    sizes[777] = 9

    assert draw_memory(range(1000), sizes).count("█") == 1


def test_noise_does_not_look_like_mountains() -> None:
    assert set(draw_memory(range(100), [10_000 + i % 3 for i in range(100)])) == {"▁"}


def test_no_reading_at_all_is_not_measured() -> None:
    assert "not measured because RuntimeError: no" in shown(Timeline((), (), (), "RuntimeError: no"))


def test_of_many_devices_a_few_are_shown_and_the_others_counted() -> None:
    columns = tuple(Column("live_arrays", f"cpu:{i}", (1, 2)) for i in range(9))

    said = shown(Timeline((0.0, 1.0), (0.0, 0.0), columns))

    assert "cpu:3 █" in said
    assert "live arrays cpu:4" not in said
    assert "and 5 more columns in memory.csv" in said


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


def test_lines_that_made_arrays_have_what_they_hold_at_most_and_at_the_end() -> None:
    said = shown(MADE)

    assert "train.py:12 ▁▃█▁ 1.00 MiB at the end, 24.0 MiB at most, at 40.0 ms" in said
    assert "readings 4 of 8 live arrays of all devices by the innermost line of yours" in said
    assert "(none of yours)" not in said, "nothing was ever there"


def test_a_chart_of_lines_has_only_what_was_read() -> None:
    first, _ = chart_memory_lines(MADE).marks

    assert (first.label, len(first.x)) == ("train.py:12", 4)


def test_without_lines_nothing_is_said_of_them() -> None:
    assert "the line that made them" not in shown(ON_CPU)
