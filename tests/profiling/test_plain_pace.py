"""How long a step takes while nothing is recorded, by the numbers of runs in recordings before and after."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xspace_by_hand import Event, op, plane, space

from benchax.errors import NotMeasured
from benchax.profiling.plain_pace import CLOCK, RunNumbers, measure_plain_pace, read_run_numbers

US = 10**6
"""Picoseconds."""


def recording(
    at_ns: int, *numbers: int, program: str = "jit_step", program_id: int = 6, is_marked: bool = True
) -> bytes:
    """Of runs 100 µs apart, the first one 50 µs after the mark of the clock."""
    stats = {"hlo_module": program, "program_id": program_id}
    runs = [op("dot.1", (60 + 100 * i) * US, 40 * US, run_id=n, **stats) for i, n in enumerate(numbers)]
    mark = [Event(f"{CLOCK}{at_ns}", 10 * US, US)] if is_marked else []
    return space(plane("/host:CPU", {"python": mark, "pool": runs}))


def test_the_first_and_last_run_are_told_with_their_times() -> None:
    found = read_run_numbers(recording(1_000_000, 41, 42, 43), "jit_step")

    assert found == RunNumbers(41, 1_050_000, 43, 1_250_000)


def test_another_program_is_not_counted() -> None:
    assert read_run_numbers(recording(0, 1, 2, program="jit_other"), "jit_step") is None
    assert read_run_numbers(space(plane("/host:CPU", {"python": []})), "jit_step") is None


def test_numbers_that_do_not_follow_each_other_count_nothing() -> None:
    with pytest.raises(NotMeasured, match="the runs of jit_step are not numbered in a row by jax"):
        read_run_numbers(recording(0, 1, 7), "jit_step")


def test_programs_of_one_name_are_not_mixed() -> None:
    runs = [op("dot.1", i * US, US, hlo_module="jit_step", program_id=i, run_id=9) for i in (1, 2)]

    with pytest.raises(NotMeasured, match="several programs jit_step"):
        read_run_numbers(space(plane("/host:CPU", {"pool": runs})), "jit_step")


def test_a_recording_without_the_mark_of_the_clock_is_refused() -> None:
    with pytest.raises(NotMeasured, match="does not say when it was recorded"):
        read_run_numbers(recording(0, 1, is_marked=False), "jit_step")


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


def test_a_loop_that_has_ended_is_not_measured() -> None:
    loop = Loop(ends_after=0)

    with pytest.raises(NotMeasured, match="jit_step was not run any more"):
        measure_plain_pace("jit_step", 100e-6, loop.record, loop.wait)


def test_a_window_with_one_run_is_not_enough() -> None:
    loop = Loop()
    loop.wait: Callable[[float], None] = lambda for_s: None

    with pytest.raises(NotMeasured, match="too few runs"):
        measure_plain_pace("jit_step", 100e-6, loop.record, loop.wait)
