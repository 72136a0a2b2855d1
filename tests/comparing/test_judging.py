"""From blocks and counts to verdicts: by hand-made blocks, without JAX."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.comparing.judging import ComparisonEvidence, confirm, judge, judge_counts, judge_times
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
    data = blocks(ratio)
    found = judge_times(MATTER, "run", data)

    assert (found.verdict, found.blocks) == (verdict, tuple(data))
    assert found.ratio == pytest.approx(ratio, rel=0.01)
    assert (found.low or math.nan) < ratio < (found.high or math.nan)
    assert 0 < (found.smallest_effect or math.nan) < 0.05
    assert (found.pairs, found.processes, found.method) == (225, 3, "one process")
    assert replace(found, **{f: getattr(MATTER, f) for f in DERIVED}) == MATTER


DERIVED = (
    "verdict", "why", "ratio", "low", "high", "smallest_effect", "baseline_value", "candidate_value", "blocks",
)  # fmt: skip


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ([], "nothing was timed"),
        ([Block(0, (1.0,), (9.0,))], "too few samples for an interval"),
        # Readings without any spread are those of a clock that moves in coarse steps.
        ([Block(p, (1.0,) * 9, (1.0 + p,) * 9) for p in range(2)], "a change below "),
        (blocks(1.0, per_block=0.15), "a change below "),
    ],
)
def test_what_says_too_little_is_unclear_and_says_why(data: list[Block], why: str) -> None:
    found = judge_times(MATTER, "run", data)

    assert (found.verdict, found.why.startswith(why)) == ("unclear", True)
    assert why != "a change below " or found.why.endswith(" % could have been missed")
    assert data or (found.ratio, found.baseline_value, found.smallest_effect) == (None, None, None)


def test_the_candidates_time_is_the_baselines_times_the_ratio_whatever_its_own_median() -> None:
    """In most pairs it takes 2 % longer; its median is that of a slower moment of the machine."""
    old = (1.0,) * 12 + (3.0,) * 13 + (1.0,) * 2
    new = (*(1.02 * s for s in old[:25]), 3.5, 3.5)
    found = judge_times(MATTER, "run", [Block(p, old, new) for p in range(3)])

    assert found.ratio == pytest.approx(1.02)
    assert found.candidate_value == pytest.approx(1.02 * (found.baseline_value or 0))


@pytest.mark.parametrize(
    ("resolution", "ratio", "verdict", "why"),
    [(0.05, 1.015, "same", "within 5.0 %"), (0.01, 1.015, "slower", ""), (0.01, 1.0, "same", "within 1.0 %")],
)
def test_a_finer_resolution_calls_a_smaller_change_by_its_name(
    resolution: float, ratio: float, verdict: str, why: str
) -> None:
    found = judge_times(replace(MATTER, resolution=resolution), "run", blocks(ratio, 60))

    assert (found.verdict, found.why, found.resolution) == (verdict, why, resolution)


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
    known = (blocks(1.0), blocks(1.5), {"peak": (8, 9), "flops": (None, None)})
    failure = Failure("out_of_memory", "build", "no 3 TiB here", "buy memory")

    found = {c.metric: c.verdict for c in judge(MATTER, ComparisonEvidence(*known))}
    (same,) = judge(MATTER, ComparisonEvidence(is_same_program=True))
    (failed,) = judge(MATTER, ComparisonEvidence(*known, failure))

    assert found == {"run": "same", "compile": "slower", "peak": "slower", "flops": "unclear"}
    assert same == replace(
        MATTER, verdict="same", method="same program", why="the same program: nothing was timed"
    )  # fmt: skip
    assert failed == replace(MATTER, failure=failure, why="out of memory in build: no 3 TiB here")
    assert confirm(named(1.1), failed).why.endswith("not confirmed (no ratio)")


# ---- confirmed --------------------------------------------------------------------------------------------------


def named(ratio: float, seed: int = 1) -> Comparison:
    return judge_times(MATTER, "run", blocks(ratio, seed=seed))


@pytest.mark.parametrize(("again", "said"), [(1.0, "+0"), (0.8, "-20 %")])
def test_a_change_that_new_data_do_not_show_loses_its_name(again: float, said: str) -> None:
    first = named(1.1)

    found = confirm(first, replace(named(again), ratio=again))

    assert (found.verdict, found.confirmed) == ("unclear", False)
    assert found.why.startswith("slower at first (+1")
    assert "not confirmed (" + said in found.why
    # With its own numbers where they do.
    assert confirm(first, named(1.2, seed=2)) == replace(first, confirmed=True)
