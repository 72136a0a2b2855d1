"""From blocks and counts to verdicts: by hand-made blocks, without JAX."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.comparing.judging import ComparisonEvidence, change, confirm, judge, judge_counts, judge_times
from benchax.model import Block, CaseId, Comparison, Failure, Remark, Version
from benchax.stats.verdicts import CONFIRMING_ALPHA

MATTER = Comparison(
    CaseId("f", (("n", 8),)),
    "run",
    Version("old", "c0ffee"),
    Version("new"),
    "unclear",
    remarks=(Remark("x", "info", "so it was"),),
)


def blocks(ratio: float, count: int = 9, scatter: float = 0.02, per_block: float = 0.0, seed: int = 1) -> list[Block]:
    """Three blocks in each process; the candidate takes `ratio` times 100 µs, give or take `scatter`."""
    dice = random.Random(seed)
    found: list[Block] = []
    for b in range(count):
        factor = ratio * math.exp(per_block * dice.gauss(0, 1))
        old = tuple(1e-4 * math.exp(0.3 * dice.gauss(0, 1)) for _ in range(25))
        found.append(Block(b // 3, old, tuple(s * factor * math.exp(scatter * dice.gauss(0, 1)) for s in old)))
    return found


# ---- times ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.0, "same"), (1.01, "same"), (1.1, "slower"), (2.0, "slower"), (0.9, "faster")]
)
def test_run_times_get_a_verdict_by_their_ratio(ratio: float, verdict: str) -> None:
    found = judge_times(MATTER, "run", blocks(ratio))

    assert found.verdict == verdict
    assert found.ratio == pytest.approx(ratio, rel=0.01)
    assert found.low is not None
    assert found.high is not None
    assert found.low < ratio < found.high


def test_a_comparison_has_all_that_it_was_made_of() -> None:
    data = blocks(1.1)

    found = judge_times(MATTER, "run", data)

    assert (found.case, found.baseline, found.candidate) == (MATTER.case, MATTER.baseline, MATTER.candidate)
    assert found.blocks == tuple(data)
    assert (found.pairs, found.processes, found.method) == (225, 3, "one process")
    assert found.baseline_value == pytest.approx(1e-4, rel=0.1)
    assert found.ratio is not None
    assert found.candidate_value == found.baseline_value * found.ratio
    assert found.smallest_effect is not None
    assert 0 < found.smallest_effect < 0.05
    assert (found.remarks, found.confirmed, found.failure) == (MATTER.remarks, None, None)


def test_the_candidates_time_is_the_baselines_times_the_ratio_whatever_its_own_median() -> None:
    """In most pairs it takes 2 % longer; its median is that of a slower moment of the machine."""
    old = (1.0,) * 12 + (3.0,) * 13 + (1.0,) * 2
    new = (*(1.02 * s for s in old[:25]), 3.5, 3.5)
    found = judge_times(MATTER, "run", [Block(p, old, new) for p in range(3)])

    assert found.ratio == pytest.approx(1.02)
    assert found.candidate_value == pytest.approx(1.02 * (found.baseline_value or 0))


def test_one_program_is_the_same_without_a_number() -> None:
    (found,) = judge(MATTER, ComparisonEvidence(is_same_program=True))

    assert (found.verdict, found.method, found.why) == ("same", "same program", "the same program: nothing was timed")
    assert (found.ratio, found.low, found.candidate_value, found.blocks) == (None, None, None, ())


@pytest.mark.parametrize(
    ("resolution", "ratio", "verdict", "why"),
    [(0.05, 1.015, "same", "within 5.0 %"), (0.01, 1.015, "slower", ""), (0.01, 1.0, "same", "within 1.0 %")],
)
def test_a_finer_resolution_calls_a_smaller_change_by_its_name(
    resolution: float, ratio: float, verdict: str, why: str
) -> None:
    found = judge_times(replace(MATTER, resolution=resolution), "run", blocks(ratio, 60))

    assert (found.verdict, found.why, found.resolution) == (verdict, why, resolution)


def test_times_between_same_and_slower_are_unclear_and_say_what_could_have_been_missed() -> None:
    found = judge_times(MATTER, "run", blocks(1.0, per_block=0.15))

    assert found.verdict == "unclear"
    assert found.why.startswith("a change below ")
    assert found.why.endswith(" % could have been missed")


def test_without_data_nothing_is_claimed() -> None:
    (found,) = judge(MATTER, ComparisonEvidence())

    assert (found.metric, found.verdict, found.why) == ("run", "unclear", "nothing was timed")
    assert (found.ratio, found.low, found.baseline_value, found.smallest_effect) == (None, None, None, None)


def test_few_pairs_are_unclear_however_far_they_are_apart() -> None:
    found = judge_times(MATTER, "run", [Block(0, (1.0,), (9.0,))])

    assert (found.verdict, found.why) == ("unclear", "too few samples for an interval")
    assert (found.low, found.high) == (None, None)


def test_readings_without_any_spread_are_no_certainty() -> None:
    """Of a clock that moves in coarse steps."""
    found = judge_times(MATTER, "run", [Block(p, (1.0,) * 9, (1.0 + p,) * 9) for p in range(2)])

    assert found.verdict == "unclear"


def test_compiling_may_differ_more_before_it_has_a_name() -> None:
    data = blocks(1.04)

    assert judge_times(MATTER, "run", data).verdict == "slower"
    assert judge_times(MATTER, "compile", data).verdict == "same"
    assert judge_times(MATTER, "compile", blocks(1.0)).why == "within 20 %"


def test_a_lower_level_is_less_strict() -> None:
    data = blocks(1.05, scatter=0.09, count=6)

    strict, loose = judge_times(MATTER, "run", data, 0.001), judge_times(MATTER, "run", data, CONFIRMING_ALPHA)

    assert (loose.high or 0) - (loose.low or 0) < (strict.high or 0) - (strict.low or 0)


@given(st.lists(st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=8), min_size=1, max_size=6), st.randoms())
def test_no_readings_make_a_number_that_is_none(readings: list[list[float]], dice: random.Random) -> None:
    data = [Block(i, tuple(r), tuple(dice.sample(r, len(r)))) for i, r in enumerate(readings)]

    found = judge_times(MATTER, "run", data)

    numbers = (found.ratio, found.low, found.high, found.smallest_effect, found.baseline_value)
    assert all(n is None or math.isfinite(n) for n in numbers)
    assert "nan" not in found.why
    assert "inf" not in found.why


# ---- counts -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "verdict", "ratio"),
    [
        (100, 100, "same", 1.0),
        (100, 101, "slower", 1.01),
        (100, 50, "faster", 0.5),
        (0, 0, "same", None),
        (0, 8, "slower", None),
        (8, 0, "faster", 0.0),
    ],
)
def test_counts_are_compared_exactly(before: float, after: float, verdict: str, ratio: float | None) -> None:
    found = judge_counts(MATTER, "peak", before, after)

    assert (found.verdict, found.ratio, found.method) == (verdict, ratio, "counted")
    assert (found.baseline_value, found.candidate_value) == (before, after)
    assert (found.low, found.high, found.why) == (None, None, "")


@pytest.mark.parametrize(("before", "after", "who"), [(None, 3, "old"), (3, None, "new"), (None, None, "old")])
def test_what_the_compiler_does_not_say_is_not_compared(before: float | None, after: float | None, who: str) -> None:
    found = judge_counts(MATTER, "flops", before, after)

    assert found.verdict == "unclear"
    assert found.why == f"not measured, because the compiler does not say it of {who}"
    assert (found.ratio, found.baseline_value, found.candidate_value) == (None, None, None)


# ---- all together -----------------------------------------------------------------------------------------------


def test_there_is_one_comparison_for_each_metric_of_which_something_is_known() -> None:
    evidence = ComparisonEvidence(blocks(1.0), blocks(1.5), {"peak": (8, 9), "flops": (None, None)})

    found = {c.metric: c.verdict for c in judge(MATTER, evidence)}

    assert found == {"run": "same", "compile": "slower", "peak": "slower", "flops": "unclear"}


def test_a_failure_is_the_only_comparison_and_no_number_beside_it() -> None:
    failure = Failure("out_of_memory", "build", "no 3 TiB here", "buy memory")

    (found,) = judge(MATTER, ComparisonEvidence(blocks(1.0), blocks(1.0), {"peak": (8, 9)}, failure))

    assert (found.metric, found.verdict, found.failure) == ("run", "unclear", failure)
    assert found.why == "out of memory in build: no 3 TiB here"
    assert (found.ratio, found.blocks) == (None, ())


# ---- confirmed --------------------------------------------------------------------------------------------------


def named(ratio: float, seed: int = 1) -> Comparison:
    return judge_times(MATTER, "run", blocks(ratio, seed=seed))


def test_a_change_that_new_data_show_too_is_confirmed_with_its_own_numbers() -> None:
    first, second = named(1.1), named(1.2, seed=2)

    assert confirm(first, second) == replace(first, confirmed=True)


@pytest.mark.parametrize(("again", "said"), [(1.0, "+0"), (0.8, "-20 %")])
def test_a_change_that_new_data_do_not_show_loses_its_name(again: float, said: str) -> None:
    first = named(1.1)

    found = confirm(first, replace(named(again), ratio=again))

    assert (found.verdict, found.confirmed) == ("unclear", False)
    assert found.why.startswith("slower at first (+1")
    assert "not confirmed (" + said in found.why


def test_a_change_whose_second_measurement_failed_is_not_confirmed() -> None:
    (failed,) = judge(MATTER, ComparisonEvidence(failure=Failure("timeout", "rounds", "too long")))

    assert confirm(named(1.1), failed).why.endswith("not confirmed (no ratio)")
    assert change(failed) == "no ratio"
