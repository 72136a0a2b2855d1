"""Sampling stops when the median is known, when time is up, or when there are enough samples; the rule says which."""

import random
from dataclasses import replace

import pytest

from benchax.errors import NotMeasured
from benchax.measuring.sampling import (
    LEAST_SAMPLES,
    PATIENCE,
    PROCESSES,
    calibrate,
    decide,
    most_processes,
    next_look,
    share_time,
)
from benchax.measuring.timers.base import PreparedTimer
from benchax.options import DEFAULTS

LIMITS = replace(DEFAULTS, max_time_s=1.0, min_time_s=0.1, max_samples=1000, relative_width=0.01)


def noisy(n, spread):
    generator = random.Random(1)
    return [1.0 + generator.uniform(-spread, spread) for _ in range(n)]


@pytest.mark.parametrize(
    ("readings", "spent_s", "expected"),
    [
        (noisy(100, 0.001), 0.2, "precise"),
        (noisy(100, 0.001), 0.05, None),
        (noisy(100, 0.5), 0.2, None),
        (noisy(100, 0.5), 1.0, "time"),
        (noisy(1000, 0.5), 0.2, "count"),
        (noisy(3, 0.001), 1.0, None),
        (noisy(3, 0.001), PATIENCE * 1.0, "time"),
        (noisy(LEAST_SAMPLES, 0.5), 1.0, "time"),
    ],
    ids=[
        "precise",
        "too early",
        "not precise yet",
        "out of time",
        "enough",
        "too few",
        "out of patience",
        "just enough",
    ],
)
def test_the_reason_to_stop(readings, spent_s, expected):
    assert decide(readings, spent_s, LIMITS) == expected


def test_looks_become_rarer_and_always_come():
    looks = [1]
    while looks[-1] < 10_000:
        looks.append(next_look(looks[-1]))

    assert len(looks) < 50
    assert looks[:4] == [1, 2, 4, 7]


@pytest.mark.parametrize("call_ns", [5, 900, 40_000, 3_000_000])
def test_calibration_fills_the_sample_time_or_takes_one_call(call_ns):
    n = calibrate(PreparedTimer(lambda n: n * call_ns), 100e-6)

    assert n == 1 or 80_000 <= n * call_ns < 200_000


def test_one_slow_reading_does_not_end_calibration():
    """The first reading is a preemption: 90 µs for a call of 1 µs."""
    readings = iter([90_000])

    n = calibrate(PreparedTimer(lambda n: next(readings, n * 1_000)), 100e-6)

    assert n >= 100


def test_calibration_keeps_to_what_the_timer_permits():
    assert calibrate(PreparedTimer(lambda n: n, most_iterations=64), 100e-6) == 64
    assert calibrate(PreparedTimer(lambda n: n * 10**9, least_iterations=8), 100e-6) == 8


def test_a_clock_that_does_not_move_does_not_hang_calibration():
    assert calibrate(PreparedTimer(lambda n: 0, most_iterations=1000), 100e-6) == 1000


def test_calls_known_to_be_slow_are_not_read_to_find_that_out():
    assert calibrate(PreparedTimer(lambda n: pytest.fail("was read"), least_iterations=8), 100e-6, call_s=1e-3) == 8


@pytest.mark.parametrize(
    ("asked", "call_s", "build_s", "count"),
    [(0, 1e-3, 0.1, PROCESSES), (0, 1e-3, None, PROCESSES), (1, 1e-3, 0.1, 1), (8, 1.0, 60.0, 8)],
)
def test_short_cases_may_take_several_processes_and_others_as_many_as_requested(asked, call_s, build_s, count):
    assert most_processes(asked, call_s, build_s, "cpu") == count


@pytest.mark.parametrize(
    ("call_s", "build_s", "platform", "why"),
    [
        (0.27, 0.1, "cpu", "a call takes 270 ms; --processes 5 asks for more"),
        (1e-3, 3.0, "cpu", "building it takes 3.00 s; --processes 5 asks for more"),
        (1e-3, 0.1, "gpu", "a process on gpu takes the whole device; --processes 5 asks for more"),
    ],
)
def test_a_case_that_gets_one_process_says_why(call_s, build_s, platform, why):
    with pytest.raises(NotMeasured) as caught:
        most_processes(0, call_s, build_s, platform)

    assert caught.value.problem == why


def test_requested_processes_share_the_time_and_the_precision_of_one():
    part = share_time(replace(DEFAULTS, max_time_s=0.5, min_time_s=0.1, relative_width=0.01, processes=4), 4)

    assert (part.max_time_s, part.min_time_s, part.processes) == (0.125, 0.025, 1)
    assert part.relative_width == 0.02  # the mean of four is known twice as well as each


def test_processes_that_are_added_take_a_short_look_each():
    part = share_time(replace(DEFAULTS, max_time_s=0.5, min_time_s=0.1, processes=0), 5)

    assert (part.max_time_s, part.min_time_s) == (pytest.approx(0.02), pytest.approx(0.004))


def test_a_process_that_stays_alone_has_all_the_time():
    assert share_time(replace(DEFAULTS, processes=0), 1) == replace(DEFAULTS, processes=1)
