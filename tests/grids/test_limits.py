"""Time limits of a grid, and how the total is shared."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.grids.running import COMPILE_LEAST_S, allowance, limits, of_the_total
from benchax.model import Failure

SECONDS = st.floats(1e-3, 1e6)


def test_compiling_has_a_minute_at_least_and_never_less_than_a_call() -> None:
    assert limits(1, None, None).compile_s == COMPILE_LEAST_S
    assert limits(90, None, None).compile_s == 90
    assert limits(90, 5, None).compile_s == 5
    assert limits(None, None, None).compile_s is None


def test_each_step_has_the_limit_that_was_given_for_it() -> None:
    given = limits(1, 7, None)

    assert {stage: given.of(stage) for stage in ("trace", "run", "check", "lower", "compile", "inputs", "start")} == {
        "trace": 1, "run": 1, "check": 1, "lower": 7, "compile": 7, "inputs": 7, "start": 7,
    }  # fmt: skip


def test_the_first_cell_may_use_half_of_all() -> None:
    assert allowance(60.0, 270, []) == 30.0


def test_the_last_cell_may_use_all_that_is_left() -> None:
    assert allowance(7.0, 1, [1.0] * 9) == 7.0


def test_when_time_is_scarce_each_gets_its_equal_share() -> None:
    assert allowance(10.0, 100, [1.0] * 5) == pytest.approx(0.1)


def test_many_that_never_end_leave_something_for_the_last() -> None:
    remaining, used = 60.0, []
    for left in range(20, 0, -1):
        used.append(allowance(remaining, left, used))
        remaining -= used[-1]

    assert min(used) > 0.2
    assert remaining == pytest.approx(0, abs=1e-9)


@given(SECONDS, st.integers(1, 10_000), st.lists(SECONDS, max_size=20))
def test_an_allowance_is_an_equal_share_at_least_and_never_more_than_there_is(
    remaining: float, left: int, finished: list[float]
) -> None:
    found = allowance(remaining, left, finished)

    assert found >= remaining / left * (1 - 1e-12)
    assert found <= remaining
    assert math.isfinite(found)


def test_a_share_that_is_over_is_told_with_the_line_that_was_running() -> None:
    stopped = Failure("timeout", "trace", "the job took longer than 220 ms; the process was killed (at f.py:3)")

    failure = of_the_total(stopped, 60.0, 0.22)

    assert failure.message == "stopped after 220 ms, its share of the 60.0 s for the whole grid (at f.py:3)"
    assert (failure.kind, failure.stage) == ("timeout", "trace")
