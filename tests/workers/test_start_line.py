"""The start line, on one host, whose clock is known to be one."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest

from benchax.errors import NotMeasured
from benchax.workers.rank import ClockReading, StartLine

STARTS = 5


def free_address() -> str:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{found.getsockname()[1]}"


def run(clocks: list[int]) -> list[tuple[StartLine, list[Any]]]:
    """What each process saw: its line, and its starts, of which the last was none."""
    address = free_address()

    def be(rank: int) -> tuple[StartLine, list[Any]]:
        line = StartLine(address, rank, len(clocks), 20.0, clocks[rank])
        begun = [line.start(is_last=i == STARTS) for i in range(STARTS + 1)]
        line.align()
        line.close()
        return line, begun

    with ThreadPoolExecutor(len(clocks)) as pool:
        return list(pool.map(be, range(len(clocks))))


@pytest.mark.slow
def test_all_begin_after_the_time_that_the_first_one_named_and_hear_of_the_end() -> None:
    found = run([1] * 3)

    assert [begun[-1] for _, begun in found] == [None] * 3
    starts = list(zip(*(begun[:-1] for _, begun in found), strict=True))
    # Nobody begins before all have come, and so after the start before.
    assert all(max(earlier) < min(later) for earlier, later in pairwise(starts))


def test_processes_of_one_clock_have_nothing_to_measure() -> None:
    (_, _), (line, begun) = run([1, 1])

    assert line.error_s == 0.0
    assert line.to_common(begun[:-1]) == tuple(begun[:-1])


@pytest.mark.slow
def test_the_offset_of_another_clock_is_within_what_is_told() -> None:
    """Both are the clock of this host, and called by two names: the truth is 0."""
    (_, _), (line, _) = run([1, 2])

    assert line.error_s > 0.0
    assert len(line.readings) == 2
    assert all(abs(reading.ahead_ns) <= reading.error_ns for reading in line.readings)


def test_between_two_readings_a_clock_drifts_in_a_straight_line() -> None:
    line = StartLine.__new__(StartLine)
    line.readings = [ClockReading(1000, 50, 3), ClockReading(3000, 70, 4)]

    assert line.to_common([1000, 2000, 3000]) == (1050, 2060, 3070)
    assert line.error_s == pytest.approx(4e-9)


def test_who_does_not_come_is_named() -> None:
    with pytest.raises(NotMeasured) as error:
        StartLine(free_address(), 0, 3, 0.05, 1)

    assert error.value.problem == "rank 1, rank 2 did not come to the start within 50.0 ms"


def test_a_first_one_that_is_not_there_is_named_with_its_address() -> None:
    address = free_address()

    with pytest.raises(NotMeasured, match=f"rank 0 cannot be reached at {address}"):
        StartLine(address, 1, 2, 0.0, 1)
