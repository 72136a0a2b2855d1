"""Whether a recording is enough, and how long the next one should be."""

from __future__ import annotations

import pytest
from steps_by_hand import US, call, work
from xspace_by_hand import Event, plane, space

from benchax.profiling.steady import LONGEST_S, MOST_EVENTS, PATIENCE_S, SeenSteps, look, next_duration


def trace(calls: int, until_us: int = 0) -> bytes:
    python = [call("step", 1000 * i, 50) for i in range(calls)]
    python += [Event("later", until_us * US, 10)] if until_us else []
    return space(
        plane("/host:CPU", {"python": python, "pool": [work(1000 * i + 50, 100, i) for i in range(max(calls, 1))]})
    )


def test_steps_are_counted_and_their_length_is_known() -> None:
    found = look(trace(8))

    assert (found.count, found.length_s) == (7, pytest.approx(0.001))


def test_a_loop_that_had_ended_before_the_recording_does_not_count() -> None:
    found = look(trace(8, until_us=1_000_000))

    # Of two such recordings that one is kept in which the device did more.
    assert (found.count, found.worked_s) == (0, pytest.approx(8 * 0.0001))


def test_a_program_that_is_called_once_has_no_steps() -> None:
    assert look(trace(1)) == SeenSteps(0, None, look(trace(1)).n_events, in_all_s=0.0001)


@pytest.mark.parametrize(
    ("seen", "recorded_s", "in_all_s", "expected"),
    [
        (SeenSteps(10, 0.1, 1000), 5.0, 6.0, None),
        (SeenSteps(0, None, 1000), 5.0, 6.0, 10.0),
        (SeenSteps(0, None, 1000), 50.0, 100.0, LONGEST_S),
        (SeenSteps(2, 2.0, 1000), 5.0, 6.0, 24.0),
        (SeenSteps(3, 20.0, 1000), LONGEST_S, 70.0, None),
        (SeenSteps(0, None, 1000), 5.0, PATIENCE_S, None),
        (SeenSteps(2, 2.0, MOST_EVENTS), 5.0, 6.0, None),
        (SeenSteps(0, None, 2 * MOST_EVENTS), 5.0, 6.0, 2.5),
    ],
    ids=["enough", "none yet", "a minute", "a few", "long steps", "patience", "too many events", "shorter"],
)
def test_how_long_the_next_recording_is(
    seen: SeenSteps, recorded_s: float, in_all_s: float, expected: float | None
) -> None:
    assert next_duration(seen, recorded_s, in_all_s, least_steps=10) == expected


def test_a_recording_in_which_nothing_ran_says_so() -> None:
    nothing = space(plane("/host:CPU", {"python": [Event("waiting", 0, 10)]}))

    assert (look(nothing).in_all_s, look(trace(1)).in_all_s) == (0.0, pytest.approx(0.0001))


def test_the_program_that_devices_are_busy_with_is_the_one_whose_runs_are_counted() -> None:
    names = (("cast", 0), ("step", 100), ("step", 400))
    python = [call(name, 1000 * i + at, 50) for i in range(8) for name, at in names]
    runs = [work(1000 * i + 160 + 300 * k, 100, 2 * i + k) for i in range(8) for k in range(2)]
    runs += [work(1000 * i + 60, 10, 100 + i, hlo_module="jit_cast") for i in range(8)]

    found = look(space(plane("/host:CPU", {"python": python, "pool": runs})))

    assert (found.program, found.runs_per_step) == ("jit_step", 2)
    assert found.events_per_s == pytest.approx(6 / 0.001)
