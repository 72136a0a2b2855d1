"""Whether a recording is enough, how long the next one should be, and how long a step takes without a recording."""

from __future__ import annotations

import pytest
from xspace_by_hand import US, Event, call, op, plane, space, work

from benchax.errors import NotMeasured
from benchax.profiling.program_recorder import (
    CLOCK,
    LONGEST_S,
    MOST_EVENTS,
    PATIENCE_S,
    SeenSteps,
    look,
    measure_plain_pace,
    next_duration,
    read_run_times,
)


def trace(calls: int, until_us: int = 0) -> bytes:
    python = [call("step", 1000 * i, 50) for i in range(calls)]
    python += [Event("later", until_us * US, 10)] if until_us else []
    return space(
        plane("/host:CPU", {"python": python, "pool": [work(1000 * i + 50, 100, i) for i in range(max(calls, 1))]})
    )


def test_steps_are_counted_and_a_program_that_is_called_once_or_not_at_all_has_none() -> None:
    nothing = space(plane("/host:CPU", {"python": [Event("waiting", 0, 10)]}))
    found, once = look(trace(8)), look(trace(1))

    assert (found.count, found.length_s) == (7, pytest.approx(0.001))
    assert once == SeenSteps(0, None, once.n_events, in_all_s=0.0001)
    assert look(nothing).in_all_s == 0.0


def test_a_loop_that_had_ended_before_the_recording_does_not_count() -> None:
    found = look(trace(8, until_us=1_000_000))

    # Of two such recordings that one is kept in which the device did more.
    assert (found.count, found.worked_s) == (0, pytest.approx(8 * 0.0001))


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


def test_the_program_that_devices_are_busy_with_is_the_one_whose_runs_are_counted() -> None:
    names = (("cast", 0), ("step", 100), ("step", 400))
    python = [call(name, 1000 * i + at, 50) for i in range(8) for name, at in names]
    runs = [work(1000 * i + 160 + 300 * k, 100, 2 * i + k) for i in range(8) for k in range(2)]
    runs += [work(1000 * i + 60, 10, 100 + i, hlo_module="jit_cast") for i in range(8)]

    found = look(space(plane("/host:CPU", {"python": python, "pool": runs})))

    assert (found.program, found.runs_per_step) == ("jit_step", 2)
    assert found.events_per_s == pytest.approx(6 / 0.001)


# ---- the pace while nothing is recorded -------------------------------------------------------------------------


def recording(
    at_ns: int, *numbers: int, program: str = "jit_step", program_id: int = 6, is_marked: bool = True
) -> bytes:
    """Of runs 100 µs apart, the first one 50 µs after the mark of the clock."""
    stats = {"hlo_module": program, "program_id": program_id}
    runs = [op("dot.1", (60 + 100 * i) * US, 40 * US, run_id=n, **stats) for i, n in enumerate(numbers)]
    mark = [Event(f"{CLOCK}{at_ns}", 10 * US, US)] if is_marked else []
    return space(plane("/host:CPU", {"python": mark, "pool": runs}))


def test_the_first_and_last_run_are_told_with_their_times() -> None:
    found = read_run_times(recording(1_000_000, 41, 42, 43), "jit_step")

    assert found == pytest.approx({41: 1_050_000, 42: 1_150_000, 43: 1_250_000})


def test_another_program_is_not_counted() -> None:
    assert read_run_times(recording(0, 1, 2, program="jit_other"), "jit_step") == {}
    assert read_run_times(space(plane("/host:CPU", {"python": []})), "jit_step") == {}


MIXED = [op("dot.1", i * US, US, hlo_module="jit_step", program_id=i, run_id=9) for i in (1, 2)]


@pytest.mark.parametrize(
    ("recorded", "why"),
    [
        (recording(0, 1, 7), "the runs of jit_step are not numbered in a row by jax"),
        (space(plane("/host:CPU", {"pool": MIXED})), "not numbered in a row"),
        (recording(0, 1, is_marked=False), "does not say when it was recorded"),
    ],
    ids=["a gap", "two programs of one name", "no mark of the clock"],
)
def test_runs_that_cannot_be_counted_are_refused(recorded: bytes, why: str) -> None:
    with pytest.raises(NotMeasured, match=why):
        read_run_times(recorded, "jit_step")


class Loop:
    """A program whose steps take 10 µs, and 100 µs while they are recorded."""

    def __init__(self, ends_after: int = 10**9) -> None:
        self.now_ns, self.number, self.ends_after = 0, 0, ends_after
        self.waited: list[float] = []

    def record(self, for_s: float) -> bytes:
        begin_ns = self.now_ns
        self.now_ns += 300_000
        if self.number >= self.ends_after:
            return recording(begin_ns)
        self.number += 3
        return recording(begin_ns, *range(self.number - 3, self.number))

    def wait(self, for_s: float) -> None:
        self.waited.append(for_s)
        self.now_ns += 1_000_000
        self.number += 100


def test_the_runs_between_two_recordings_are_counted() -> None:
    """From the last run of one to the first of the next there are 101, in 1.1 ms."""
    loop = Loop()

    found = measure_plain_pace("jit_step", 100e-6, loop.record, loop.wait)

    assert found == pytest.approx(1.1e-3 / 101, rel=1e-6)
    assert len(loop.waited) == 3


def test_a_loop_that_ends_meanwhile_is_told_by_the_windows_that_it_filled() -> None:
    loop = Loop(ends_after=200)

    assert measure_plain_pace("jit_step", 100e-6, loop.record, loop.wait) == pytest.approx(1.1e-3 / 101, rel=1e-6)


def test_a_loop_that_has_ended_and_a_window_with_one_run_are_not_measured() -> None:
    ended, loop = Loop(ends_after=0), Loop()

    with pytest.raises(NotMeasured, match="jit_step was not run any more"):
        measure_plain_pace("jit_step", 100e-6, ended.record, ended.wait)
    with pytest.raises(NotMeasured, match="too few runs"):
        measure_plain_pace("jit_step", 100e-6, loop.record, lambda for_s: None)
