"""Ratios of paired samples: formulas by hand, coverage and alarms by simulation with fixed seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.stats import verdicts
from benchax.stats.verdicts import ALPHA, Ratio, design_effect, ratio_of, verdict

BLOCKS = st.lists(st.lists(st.floats(-2, 2), min_size=1, max_size=30), min_size=1, max_size=24)


def simulated(effect: float, between: float, blocks: int, seed: int, rounds: int = 25) -> list[list[float]]:
    """Logarithms with heavy tails around ln(1 + effect), and blocks that differ by `between`."""
    dice = np.random.default_rng(seed)
    centres = math.log(1 + effect) + between * dice.standard_normal(blocks)
    return [(c + 0.05 * dice.standard_t(3, rounds)).tolist() for c in centres]


@given(BLOCKS)
def test_the_ratio_lies_in_its_interval(blocks: list[list[float]]) -> None:
    found = ratio_of(blocks, ALPHA)

    assert found.design_effect >= 1
    if found.low is not None and found.high is not None:
        assert found.low <= found.ratio * (1 + 1e-12)
        assert found.ratio <= found.high * (1 + 1e-12)


@given(BLOCKS)
def test_swapping_the_versions_turns_the_ratio_round(blocks: list[list[float]]) -> None:
    one, other = ratio_of(blocks, ALPHA), ratio_of([[-v for v in block] for block in blocks], ALPHA)

    assert other.ratio == pytest.approx(1 / one.ratio)
    assert (other.low is None) == (one.low is None)
    if one.low is not None and one.high is not None:
        assert (other.low, other.high) == pytest.approx((1 / one.high, 1 / one.low))


def test_an_interval_by_hand() -> None:
    """100 values without block differences: E = 1, T(0.99, 7) = 2.998, q = 0.1549: ranks 34 and 65, counted from 0."""
    values = [i / 1000 for i in range(100)]
    blocks = [values[i::4] for i in range(4)]

    found = ratio_of(blocks, 0.02)

    assert found.design_effect == 1
    assert (math.log(found.low or 1), math.log(found.high or 1)) == pytest.approx((0.034, 0.065))


def test_few_pairs_have_no_interval() -> None:
    assert ratio_of([[0.1], [0.1], [0.1]], ALPHA).low is None
    assert verdict(ratio_of([[0.1], [0.1], [0.1]], ALPHA)) == "unclear"


def test_blocks_that_differ_widen_the_interval() -> None:
    alike = ratio_of(simulated(0.0, 0.0, 9, seed=1), ALPHA)
    apart = ratio_of(simulated(0.0, 0.05, 9, seed=1), ALPHA)

    assert apart.design_effect > 3 > alike.design_effect
    assert (apart.high or 9) - (apart.low or 0) > 1.5 * ((alike.high or 9) - (alike.low or 0))


def test_a_block_that_a_neighbour_spoilt_does_not_spoil_the_others() -> None:
    """Four of six pairs of one block were hit: its median has moved by half, and its pairs show that they scatter."""
    dice = np.random.default_rng(3)
    fine = [(0.01 * dice.standard_t(3, 6)).tolist() for _ in range(5)]
    spoilt = [[-0.6, 0.0, -0.7, 0.01, -0.4, -0.5], *fine]

    assert design_effect(spoilt) < 3
    assert design_effect([[-0.51, -0.5, -0.49, -0.5, -0.52, -0.5], *fine]) > 30
    assert verdict(ratio_of(spoilt, ALPHA)) == verdict(ratio_of([*fine, fine[0]], ALPHA)) == "same"


def test_pairs_without_spread_prove_nothing_where_blocks_differ() -> None:
    assert design_effect([[0.0] * 9, [0.1] * 9]) == math.inf
    assert verdict(ratio_of([[0.0] * 9, [0.1] * 9], ALPHA)) == "unclear"
    assert design_effect([[0.1] * 9, [0.1] * 9]) == 1


def test_where_only_blocks_differ_their_medians_are_the_data() -> None:
    """Medians 0.44, 0.46, 0.48 three times over: mean 0.46, t(0.99, 8) = 2.896, error 0.017321 / 3."""
    blocks = [[m - 1e-6, m, m + 1e-6] * 8 for m in (0.44, 0.46, 0.48) * 3]

    found = ratio_of(blocks, 0.02)

    half = 2.896 * 0.0173205 / 3
    assert (math.log(found.low or 1), math.log(found.high or 1)) == pytest.approx((0.46 - half, 0.46 + half), abs=1e-4)
    assert verdict(found) == "slower"


@pytest.mark.parametrize("between", [0.0, 0.01, 0.03])
def test_unchanged_code_is_hardly_ever_called_slower(between: float) -> None:
    found = [verdict(ratio_of(simulated(0.0, between, 9, seed), ALPHA)) for seed in range(400)]

    bound = 400 * ALPHA / 2 + 3 * math.sqrt(400 * ALPHA / 2)
    assert found.count("slower") <= bound
    assert found.count("faster") <= bound


@pytest.mark.parametrize("between", [0.0, 0.01, 0.02])
def test_the_interval_holds_the_truth_as_often_as_it_says(between: float) -> None:
    intervals = [ratio_of(simulated(0.05, between, 9, seed), ALPHA) for seed in range(400)]

    held = sum((r.low or 0) <= 1.05 <= (r.high or 9) for r in intervals) / len(intervals)
    assert held >= 1 - ALPHA - 3 * math.sqrt(ALPHA * (1 - ALPHA) / len(intervals))


@pytest.mark.parametrize(
    ("low", "middle", "high", "word"),
    [
        (1.001, 1.03, 1.06, "slower"),
        (1.001, 1.015, 1.03, "same"),  # a change too small to have a name, and within 5 %
        (0.94, 0.97, 0.999, "faster"),
        (0.96, 1.0, 1.04, "same"),
        (0.9, 1.0, 1.04, "unclear"),
        (0.99, 1.1, 1.3, "unclear"),
        (None, 1.5, None, "unclear"),
    ],
)
def test_the_words(low: float | None, middle: float, high: float | None, word: str) -> None:
    assert verdict(Ratio(middle, low, high, 100, 6, 1.0, 0.01)) == word


@pytest.mark.parametrize(("effect", "grade"), [(0.01, "A"), (0.015, "B"), (0.05, "C"), (0.07, "D"), (0.3, "F")])
def test_the_grade_says_what_could_have_been_seen(effect: float, grade: str) -> None:
    assert verdicts.grade(effect) == grade
