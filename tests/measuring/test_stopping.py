"""Sampling stops when the median is known, when time is up, or when there are enough samples; the rule says which."""

import random
from dataclasses import replace

import pytest

from benchax.measuring.stopping import LEAST_SAMPLES, PATIENCE, calibrate, decide, next_look
from benchax.measuring.timers.base import Prepared
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
    n = calibrate(Prepared(lambda n: n * call_ns), 100e-6)

    assert n == 1 or 80_000 <= n * call_ns < 200_000


def test_one_slow_reading_does_not_end_calibration():
    """The first reading is a preemption: 90 µs for a call of 1 µs."""
    readings = iter([90_000])

    n = calibrate(Prepared(lambda n: next(readings, n * 1_000)), 100e-6)

    assert n >= 100


def test_calibration_keeps_to_what_the_timer_permits():
    assert calibrate(Prepared(lambda n: n, most_iterations=64), 100e-6) == 64
    assert calibrate(Prepared(lambda n: n * 10**9, least_iterations=8), 100e-6) == 8


def test_a_clock_that_does_not_move_does_not_hang_calibration():
    assert calibrate(Prepared(lambda n: 0, most_iterations=1000), 100e-6) == 1000


def test_calls_known_to_be_slow_are_not_read_to_find_that_out():
    assert calibrate(Prepared(lambda n: pytest.fail("was read"), least_iterations=8), 100e-6, call_s=1e-3) == 8
