"""From how many calls on compiling pays: by hand-made samples, without JAX."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from comparisons_by_hand import compared
from measurement_strategies import measured

from benchax.comparing.break_even import SAME_PROGRAM, break_even, of_comparison
from benchax.errors import UsageError
from benchax.model import Block, Comparison, Measurement, Remark, Samples, Stages, Version

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
        (1e6, 3.0, 1.0, 500_000),
        (12.0, 1.0, 3.0, None),
    ],
)
def test_calls_are_the_cost_of_building_over_what_each_call_saves(
    build_s: float, eager_s: float, jitted_s: float, calls: int | None
) -> None:
    jitted = replace(
        row(*times(jitted_s)), stages=Stages(trace_s=build_s / 4, lower_s=build_s / 4, compile_s=build_s / 2)
    )
    of_ten = replace(row(), samples=(Samples("wall", 10, times(10 * eager_s)),))

    for eager in (row(*times(eager_s)), of_ten):
        result = break_even(eager, jitted)

        assert (result.build_s, result.eager_s) == (build_s, eager_s)
        assert (result.low, result.calls, result.high) == (calls, calls, calls)


def test_the_bounds_come_from_the_opposite_ends_of_the_intervals() -> None:
    """Saved per call: 6 - 2 = 4 s; at best (6 + 1) - (2 - 1) = 6 s, at worst (6 - 1) - (2 + 1) = 2 s."""
    result = break_even(row(*times(6.0, around=1.0)), row(*times(2.0, around=1.0), build_s=12.0))
    apart = break_even(row(*times(5.0, around=0.5)), row(*times(2.0, around=0.2), build_s=1.0))

    assert (result.low, result.calls, result.high) == (2, 3, 6)
    # It is clear where the near ends are a factor of 2 apart.
    assert (result.is_clear, apart.is_clear) == (False, True)


@pytest.mark.parametrize(("eager_s", "jitted_s", "bounds"), [(3.0, 2.0, "4 – never"), (2.0, 2.5, "2 – never")])
def test_rows_of_two_moments_decide_nothing_below_a_factor_of_two(eager_s: float, jitted_s: float, bounds: str) -> None:
    build_s = 12.0 if eager_s > jitted_s else 3.0
    result = break_even(row(*times(eager_s, around=1.0)), row(*times(jitted_s, around=1.0), build_s=build_s))

    assert not result.is_clear
    assert str(result) == (
        f"Whether compiling ({build_s:.3g}{'.00' if build_s < 10 else '.0'} s) pays is unclear (95 %: {bounds}): "
        f"{eager_s:.2f} s eager, {jitted_s:.2f} s jitted, one after the other, which can't resolve less than a factor "
        "of 2."
    )


# ---- by pairs ----------------------------------------------------------------------------------------------------


def jitted_takes(ratio: float, **changed: Any) -> Comparison:
    """The jitted call takes so many times as long as the eager one (10 µs), give or take 1 %."""
    return compared(0, ratio, baseline=Version("eager"), candidate=Version("jitted"), **changed)


def test_pairs_decide_what_a_call_saves_whatever_the_rows_say() -> None:
    """9 ms over 5 µs are 1800 calls; over 4.95 and 5.05 µs, 1818.2 and 1782.2."""
    found = break_even(row(*times(1.0)), row(*times(9.0), build_s=9e-3), jitted_takes(0.5))

    assert (found.low, found.calls, found.high) == (1783, 1800, 1819)
    assert str(found) == (
        "Compiling (9.00 ms) pays from 1,800 calls on (95 %: 1,783 – 1,819): 10.0 µs eager, 5.00 µs jitted, "
        "2.00× (1.98 – 2.02) faster."
    )


ONE = Remark(SAME_PROGRAM, "info", "both run the same program")
PAIRS = {
    "never": jitted_takes(1.5),
    "unclear": jitted_takes(0.97, verdict="unclear", low=0.9, high=1.1),
    "same": jitted_takes(1.001),
    "one program": jitted_takes(1.001, remarks=(ONE,)),
}


def test_what_pairs_say_in_words(snapshot: Any) -> None:
    assert {name: str(of_comparison(9e-3, c)) for name, c in PAIRS.items()} == snapshot


def test_the_bounds_hold_what_other_processes_say() -> None:
    """Eager calls take 3 ms in processes that have pages at hand, and 9 where they are mapped anew."""
    takes = [3e-3, 9e-3, 3.2e-3, 9.5e-3]
    blocks = tuple(Block(i, (eager_s,) * 20, (1e-3,) * 20) for i, eager_s in enumerate(takes))
    c = jitted_takes(0.16, baseline_value=6e-3, blocks=blocks)

    found = of_comparison(0.05, c)

    assert found is not None
    assert found.calls == 10
    assert found.low is not None
    assert found.low <= math.ceil(0.05 / 8.5e-3)
    assert found.high is not None
    assert found.high >= math.ceil(0.05 / 2e-3)


def test_the_baseline_may_be_the_jitted_call() -> None:
    eager_takes_twice = of_comparison(9e-3, jitted_takes(2.0), is_eager_baseline=False)

    assert eager_takes_twice is not None
    assert (eager_takes_twice.eager_s, eager_takes_twice.jitted_s, eager_takes_twice.calls) == (2e-5, 1e-5, 900)
    assert of_comparison(9e-3, jitted_takes(0.5, low=None, high=None)) is None


@pytest.mark.parametrize(
    ("eager_s", "jitted_s", "build_s", "text"),
    [
        (1.5e-3, 0.5e-3, 1.2345, "(1.23 s) pays from 1,235 calls on: 1.50 ms eager, 500 µs jitted, 3.00× faster."),
        (3.0, 1.0, 1.0, "(1.00 s) pays from 1 call on: 3.00 s eager, 1.00 s jitted, 3.00× faster."),
    ],
)
def test_the_sentence_names_both_times_and_the_gain(eager_s: float, jitted_s: float, build_s: float, text: str) -> None:
    assert str(break_even(row(*times(eager_s)), row(*times(jitted_s), build_s=build_s))) == f"Compiling {text}"


def test_too_few_samples_for_an_interval_are_named() -> None:
    result = break_even(row(3.0, 3.0), row(*times(1.0), build_s=8.0))

    assert str(result).startswith("Compiling (8.00 s) pays from 4 calls on (no interval: too few samples):")


LOOP = row(*STEADY, build_s=1.0, timer="loop")


@pytest.mark.parametrize(
    ("eager", "jitted", "text"),
    [
        (row(*STEADY), row(*STEADY), "has no time to build\nexpected a row of a jitted function"),
        (LOOP, row(*STEADY, build_s=1.0), "has no wall samples\nexpected rows measured by the timer wall"),
        (row(*STEADY), LOOP, "has no wall samples\nexpected rows measured by the timer wall"),
    ],
)
def test_rows_that_lack_a_time_are_refused(eager: Measurement, jitted: Measurement, text: str) -> None:
    with pytest.raises(UsageError) as error:
        break_even(eager, jitted)

    assert str(error.value) == f"the row of 'f' {text}"
