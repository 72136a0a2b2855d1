"""Every reading is kept, disturbed ones are marked, warming up ends when nothing changes any more."""

import gc
import random
from contextlib import nullcontext
from dataclasses import replace
from itertools import repeat

import jax
import jax.numpy as jnp
import pytest

from benchax.errors import NotMeasured
from benchax.measuring import sampling
from benchax.measuring.sampling import (
    LEAST_SAMPLES,
    NO_WARMUP,
    PATIENCE,
    PROCESSES,
    calibrate,
    call_again,
    collect,
    decide,
    most_processes,
    reject_implausible,
    share_time,
    warm_up,
)
from benchax.measuring.timers.base import PreparedTimer
from benchax.model import Samples
from benchax.options import DEFAULTS

OPTIONS = replace(DEFAULTS, max_time_s=1.0, min_time_s=0.001, sample_time_s=1e-9)


class FakeClock:
    """Nanoseconds that pass only when something is done."""

    def __init__(self):
        self.now = 0

    def __call__(self):
        return self.now


def taken(each_ns, readings, timer="wall", clock=None, **options):
    """The samples of a timer whose readings take `each_ns`."""
    clock, readings = clock or FakeClock(), iter(readings)

    def sample(n):
        clock.now += each_ns
        return next(readings)

    return collect(timer, PreparedTimer(sample), replace(OPTIONS, **options), lambda share: None, clock)


def test_every_reading_is_kept_in_order():
    samples = taken(1_000_000, range(10, 10_000), max_samples=50)

    first = round(samples.elapsed_s[0] * 1e9)
    assert [round(t * 1e9) for t in samples.elapsed_s] == list(range(first, first + len(samples.elapsed_s)))
    assert samples.stop in ("count", "time")
    assert len(samples.disturbed or ()) == len(samples.elapsed_s)


def test_preempted_samples_are_marked_and_stay_and_none_is_where_the_system_does_not_tell(monkeypatch):
    # The first reading is that before the samples; calibration needs none.
    switches = iter([0, 0, 1, 1, 1, 2, *[2] * 100])
    monkeypatch.setattr(sampling, "preemptions", lambda: next(switches))
    samples = taken(1_000_000, repeat(1000), max_samples=8, min_time_s=1.0)
    monkeypatch.setattr(sampling, "preemptions", lambda: None)
    unknown = taken(0, repeat(1000), max_samples=6)

    assert samples.disturbed == (False, True, False, False, True, False, False, False)
    assert len(samples.elapsed_s) == 8
    assert unknown.disturbed is None


def test_before_the_least_time_is_over_no_look_ends_a_batch():
    """A timer that takes several readings at once copies its inputs for each batch."""
    clock, batches = FakeClock(), []

    def take(n, count):
        batches.append(count)
        clock.now += 1_000_000 * count
        return [1_000_000 + i % 2 for i in range(count)]

    prepared = PreparedTimer(lambda n: take(n, 1)[0], take=take)
    samples = collect("in_graph", prepared, replace(OPTIONS, min_time_s=0.1), lambda share: None, clock)

    assert min(batches[-5:-1]) >= 19
    assert samples.stop == "precise"


@pytest.mark.parametrize("reading_ns", [-1_000_000, 0])
def test_differences_that_say_nothing_of_what_they_took_do_not_put_off_the_limit(reading_ns):
    """Seen: 120 s of `loop`, for a limit of 0.25 s, after one reading that was negative."""
    clock = FakeClock()

    samples = taken(10_000_000, repeat(reading_ns), "loop", clock, min_time_s=0.1)

    assert samples.stop == "time"
    assert clock.now / 1e9 <= 2 * OPTIONS.max_time_s


def test_garbage_is_not_collected_inside_a_sample_and_is_afterwards():
    seen = []

    collect(
        "wall",
        PreparedTimer(lambda n: seen.append(gc.isenabled()) or 1000),
        replace(OPTIONS, max_samples=6),
        lambda s: None,
    )

    assert not any(seen)
    assert gc.isenabled()


def test_progress_is_told_between_samples_and_ends_at_most_at_one():
    clock, shares = FakeClock(), []

    def sample(n):
        clock.now += 100_000_000
        return 1000 + clock.now % 7

    collect("wall", PreparedTimer(sample), replace(OPTIONS, relative_width=1e-9), shares.append, clock)

    assert shares == sorted(shares)
    assert shares[-1] == 1.0


DRIFTING = (60e-6,) * 50 + (80e-6,) * 50
NOTHING = Samples("in_graph", 1, (300e-9,) * 40, overhead_s=281e-9)


@pytest.mark.parametrize(
    ("samples", "call_s", "why"),
    [
        (Samples("loop", 10, tuple((-1) ** i * 1e-9 for i in range(40))), 0.0, "indistinguishable from zero"),
        (Samples("loop", 10, tuple(1e-9 * (i * 7 % 5 - 3) for i in range(40))), 0.0, "indistinguishable from zero"),
        (Samples("loop", 1, DRIFTING), 0.0, "its 100 readings have no interval"),
        (NOTHING, 9e-6, r"^it takes less than reading the clock does \(281 ns\)$"),
        # A function of 28 ms does not take less than a reading of the clock.
        (
            NOTHING,
            28e-3,
            r"^its timed region takes less than .* \(281 ns\), and a call takes 28.0 ms: XLA moved work out of it, or ",
        ),
        (Samples("loop", 10, (1e-6,) * 40), 0.0, None),
        (Samples("wall", 1, DRIFTING), 0.0, None),
    ],
)
def test_readings_that_say_nothing_are_not_a_measurement(samples, call_s, why):
    with nullcontext() if why is None else pytest.raises(NotMeasured, match=why):
        assert reject_implausible(samples, call_s) is samples


def call_taking(clock, durations_ns):
    durations = iter(durations_ns)

    def call():
        clock.now += next(durations)
        return jnp.float32(0)

    return call


def test_warming_up_ends_when_calls_no_longer_get_faster():
    clock = FakeClock()
    call = call_taking(clock, [9000] * 5 + [4000] * 5 + [2000] * 100)

    warmup = warm_up(lambda: call, 1.0, clock)

    assert warmup.is_steady
    assert warmup.windows_s == (9e-6, 4e-6, 2e-6, 2e-6)


def test_warming_up_that_never_ends_is_cut_and_said():
    clock = FakeClock()
    call = call_taking(clock, (10**8 * 0.5**i for i in range(1000)))

    warmup = warm_up(lambda: call, 0.15, clock)

    assert not warmup.is_steady


def test_a_call_that_compiles_is_not_warm():
    clock, sizes, jitted = FakeClock(), iter([3, 4, 5, 6, 7, 8, *[9] * 100]), jax.jit(lambda x: x + 0.25)

    def call():
        clock.now += 1000
        return jitted(jnp.ones(next(sizes)))

    warmup = warm_up(lambda: call, 10.0, clock)

    assert warmup.is_steady
    assert warmup.compiles >= 7
    assert warmup.calls >= 15


@pytest.mark.parametrize(
    ("call_s", "first_s", "calls", "is_steady"),
    [
        (1.0, 0.0, 2, True),  # slow calls are windows of their own
        (0.01, 0.01, 1, True),  # as the first call is, if it is slow
        (0.007, 0.632, 2, True),  # seen: "a call takes 632 ms" next to "wall 7.05 ms"
    ],
)
def test_slow_calls_warm_up_one_by_one_and_the_first_does_not_decide(call_s, first_s, calls, is_steady):
    clock = FakeClock()
    call = call_taking(clock, [round(call_s * 1e9)] * 100)

    warmup = warm_up(lambda: call, 1.5, clock, first_s=first_s)

    assert (warmup.calls, warmup.is_steady) == (calls, is_steady)
    assert (warmup.least_s, warmup.last_s, warmup.long_calls_s) == (call_s, call_s, ())


@pytest.mark.parametrize("second_ns", [30_000_000_000, 20_000_000_000])
def test_a_call_that_takes_all_the_time_is_made_once_and_is_a_sample(second_ns: int):
    clock = FakeClock()
    call = call_taking(clock, [second_ns] * 100)

    warmup = warm_up(lambda: call, 0.5, clock, first_s=30.0)
    prepared = PreparedTimer(lambda n: pytest.fail("called again"))
    samples = collect(
        "wall", prepared, OPTIONS, lambda share: None, clock, call_s=warmup.least_s, taken_s=warmup.long_calls_s
    )

    assert warmup.calls == 1
    assert (samples.elapsed_s, samples.iterations, samples.stop) == ((second_ns / 1e9,), 1, "time")


def test_a_long_call_is_the_first_of_the_samples():
    clock = FakeClock()

    def sample(n):
        clock.now += 600_000_000
        return 600_000_000

    samples = collect("wall", PreparedTimer(sample), OPTIONS, lambda share: None, clock, call_s=0.7, taken_s=(0.7,))

    assert samples.elapsed_s == (0.7, *[0.6] * 5)
    assert samples.disturbed is None, "nobody has looked at the first"


def clock_of(*calls_s: float):
    """A clock under which the calls take these seconds, one after the other."""
    times = iter([t for call_s in calls_s for t in (0, round(call_s * 1e9))])
    return lambda: next(times)


@pytest.mark.parametrize(
    ("warm_s", "again_s", "least_s"),
    [
        ((0.027, 0.027), (0.015, 0.002), 0.002),  # preempted calls don't make a short call a long one
        ((0.027, 0.027), (0.03, 0.026, 0.031), 0.026),  # one that stays above the limit is the least of five
        ((0.009,), (), 0.009),
        ((0.2,), (), 0.2),
    ],
)
def test_calls_near_the_limit_are_made_again(warm_s, again_s, least_s):
    warm = replace(NO_WARMUP, calls=len(warm_s), least_s=min(warm_s), timed=len(warm_s))

    again = call_again(lambda: lambda: None, warm, 0.010, clock=clock_of(*again_s))

    count = len(warm_s) + len(again_s)
    assert (again.least_s, again.timed, again.calls) == (least_s, count, count)


def test_warming_up_knows_the_least_of_its_calls():
    window = [t for ns in (3000, 9000, 2000, 5000, 4000) for t in (0, ns)]
    # The clock is also read when warming up begins, and after a window that is not the last.
    times = iter([0, *window, 0, *window])

    warm = warm_up(lambda: lambda: None, 1.0, clock=lambda: next(times))

    assert (warm.least_s, warm.timed) == (2e-6, 10)


# ---- stopping ---------------------------------------------------------------------------------------------------
#
# Sampling stops when the median is known, when time is up, or when there are enough samples; the rule says which.

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


@pytest.mark.parametrize("call_ns", [5, 900, 40_000, 3_000_000])
def test_calibration_fills_the_sample_time_or_takes_one_call(call_ns):
    n = calibrate(PreparedTimer(lambda n: n * call_ns), 100e-6)

    assert n == 1 or 80_000 <= n * call_ns < 200_000


def test_one_slow_reading_does_not_end_calibration():
    """The first reading is a preemption: 90 µs for a call of 1 µs."""
    readings = iter([90_000])

    n = calibrate(PreparedTimer(lambda n: next(readings, n * 1_000)), 100e-6)

    assert n >= 100


def not_read(n):
    pytest.fail("was read")


@pytest.mark.parametrize(
    ("timer", "call_s", "expected"),
    [
        (PreparedTimer(lambda n: n, most_iterations=64), 0.0, 64),
        (PreparedTimer(lambda n: n * 10**9, least_iterations=8), 0.0, 8),
        (PreparedTimer(lambda n: 0, most_iterations=1000), 0.0, 1000),  # a clock that does not move
        (PreparedTimer(not_read, least_iterations=8), 1e-3, 8),  # known to be slow
    ],
)
def test_calibration_keeps_to_what_the_timer_permits(timer, call_s, expected):
    assert calibrate(timer, 100e-6, call_s) == expected


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


def test_requested_processes_share_the_time_and_the_precision_of_one_and_others_take_a_short_look():
    options = replace(DEFAULTS, max_time_s=0.5, min_time_s=0.1, relative_width=0.01)
    part, look = share_time(replace(options, processes=4), 4), share_time(replace(options, processes=0), 5)

    assert (part.max_time_s, part.min_time_s, part.processes) == (0.125, 0.025, 1)
    assert part.relative_width == 0.02  # the mean of four is known twice as well as each
    assert (look.max_time_s, look.min_time_s) == (pytest.approx(0.02), pytest.approx(0.004))
    assert share_time(replace(options, processes=0), 1) == replace(options, processes=1)
