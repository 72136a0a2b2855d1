"""From how many calls on compiling pays: by hand-made samples, without JAX."""

from __future__ import annotations

from dataclasses import replace

import pytest
from measurement_strategies import measured

from benchax.comparing.break_even import break_even
from benchax.errors import UsageError
from benchax.model import Measurement, Samples, Stages

# Six samples are the fewest that have an interval: the extremes.
STEADY = (1.0,) * 6


def row(*elapsed_s: float, build_s: float | None = None, timer: str = "wall") -> Measurement:
    stages = Stages(trace_s=build_s, lower_s=0.0, compile_s=0.0) if build_s is not None else Stages()
    return replace(measured(), samples=(Samples(timer, 1, elapsed_s),), stages=stages)


def times(seconds: float, around: float = 0.0) -> tuple[float, ...]:
    """Six samples with that median, whose interval reaches `around` to both sides."""
    return tuple(seconds + around * side for side in (-1, 0, 0, 0, 0, 1))


@pytest.mark.parametrize(
    ("build_s", "eager_s", "jitted_s", "calls"),
    [
        (9.0, 3.0, 1.0, 5),  # 4.5 calls: the fifth pays
        (8.0, 3.0, 1.0, 4),
        (0.001, 3.0, 1.0, 1),
        (1e6, 3.0, 2.0, 1_000_000),
    ],
)
def test_calls_are_the_cost_of_building_over_what_each_call_saves(
    build_s: float, eager_s: float, jitted_s: float, calls: int
) -> None:
    result = break_even(row(*times(eager_s)), row(*times(jitted_s), build_s=build_s))

    assert (result.low, result.calls, result.high) == (calls, calls, calls)


def test_building_is_tracing_lowering_and_compiling() -> None:
    jitted = replace(row(*times(1.0)), stages=Stages(trace_s=1.0, lower_s=2.0, compile_s=4.0))

    result = break_even(row(*times(2.0)), jitted)

    assert result.build_s == 7.0
    assert result.calls == 7


def test_the_bounds_come_from_the_opposite_ends_of_the_intervals() -> None:
    """Saved per call: 6 - 2 = 4 s; at best (6 + 1) - (2 - 1) = 6 s, at worst (6 - 1) - (2 + 1) = 2 s."""
    result = break_even(row(*times(6.0, around=1.0)), row(*times(2.0, around=1.0), build_s=12.0))

    assert (result.low, result.calls, result.high) == (2, 3, 6)


def test_a_function_that_is_not_faster_never_pays() -> None:
    result = break_even(row(*times(1.0)), row(*times(1.0), build_s=12.0))

    assert (result.low, result.calls, result.high) == (None, None, None)
    assert str(result) == "Compiling (12.0 s) never pays: 1.00 s eager, 1.00 s jitted."


def test_never_within_the_interval_is_said() -> None:
    result = break_even(row(*times(3.0, around=1.0)), row(*times(2.0, around=1.0), build_s=12.0))

    assert (result.low, result.calls, result.high) == (4, 12, None)
    assert str(result) == (
        "Compiling (12.0 s) pays from 12 calls on (95 %: 4 – never): 3.00 s eager, 2.00 s jitted, 1.5 times faster."
    )


def test_what_the_intervals_leave_open_is_not_called_never() -> None:
    result = break_even(row(*times(2.0, around=1.0)), row(*times(2.5, around=1.0), build_s=3.0))

    assert (result.low, result.calls, result.high) == (2, None, None)
    assert str(result) == "Compiling (3.00 s) may pay or not (95 %: 2 – never): 2.00 s eager, 2.50 s jitted."


def test_the_sentence_names_both_times_and_the_gain() -> None:
    result = break_even(row(*times(1.5e-3)), row(*times(0.5e-3), build_s=1.2345))

    assert str(result) == (
        "Compiling (1.23 s) pays from 1,235 calls on: 1.50 ms eager, 500 µs jitted, 3.0 times faster."
    )


def test_one_call_is_singular() -> None:
    result = break_even(row(*times(3.0)), row(*times(1.0), build_s=1.0))

    assert "pays from 1 call on:" in str(result)


def test_too_few_samples_for_an_interval_are_named() -> None:
    result = break_even(row(3.0, 3.0), row(*times(1.0), build_s=8.0))

    assert not result.has_bounds
    assert str(result).startswith("Compiling (8.00 s) pays from 4 calls on (no interval: too few samples):")


def test_samples_of_several_calls_count_per_call() -> None:
    eager = replace(row(), samples=(Samples("wall", 10, times(30.0)),))

    result = break_even(eager, row(*times(1.0), build_s=8.0))

    assert result.eager_s == 3.0
    assert result.calls == 4


def test_a_row_without_a_time_to_build_is_refused() -> None:
    with pytest.raises(UsageError) as error:
        break_even(row(*STEADY), row(*STEADY))

    assert str(error.value) == "the row of 'f' has no time to build\nexpected a row of a jitted function"


@pytest.mark.parametrize("which", ["eager", "jitted"])
def test_a_row_without_wall_samples_is_refused(which: str) -> None:
    rows = {"eager": row(*STEADY), "jitted": row(*STEADY, build_s=1.0)}
    rows[which] = row(*STEADY, build_s=1.0, timer="loop")

    with pytest.raises(UsageError) as error:
        break_even(**rows)

    assert str(error.value) == "the row of 'f' has no wall samples\nexpected rows measured by the timer wall"
