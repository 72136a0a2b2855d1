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
def test_the_ratio_lies_in_its_interval_and_turns_round_with_the_versions(blocks: list[list[float]]) -> None:
    found, other = ratio_of(blocks, ALPHA), ratio_of([[-v for v in block] for block in blocks], ALPHA)

    assert found.design_effect >= 1
    assert other.ratio == pytest.approx(1 / found.ratio)
    assert (other.low is None) == (found.low is None)
    if found.low is not None and found.high is not None:
        assert found.low <= found.ratio * (1 + 1e-12)
        assert found.ratio <= found.high * (1 + 1e-12)
        assert (other.low, other.high) == pytest.approx((1 / found.high, 1 / found.low))


def test_intervals_by_hand() -> None:
    """100 values without block differences: E = 1, T(0.99, 7) = 2.998, q = 0.1549: ranks 34 and 65, counted from 0.

    Where only blocks differ, their medians are the data: 0.44, 0.46, 0.48 three times over have the mean 0.46,
    t(0.99, 8) = 2.896, and the error 0.017321 / 3.
    """
    values = [i / 1000 for i in range(100)]
    found = ratio_of([values[i::4] for i in range(4)], 0.02)
    by_blocks = ratio_of([[m - 1e-6, m, m + 1e-6] * 8 for m in (0.44, 0.46, 0.48) * 3], 0.02)

    assert found.design_effect == 1
    assert (math.log(found.low or 1), math.log(found.high or 1)) == pytest.approx((0.034, 0.065))
    half, ends = 2.896 * 0.0173205 / 3, (math.log(by_blocks.low or 1), math.log(by_blocks.high or 1))
    assert ends == pytest.approx((0.46 - half, 0.46 + half), abs=1e-4)
    assert verdict(by_blocks) == "slower"


@pytest.mark.parametrize(
    ("blocks", "effect"),
    [([[0.1], [0.1], [0.1]], 1), ([[0.0] * 9, [0.1] * 9], math.inf), ([[0.1] * 9, [0.1] * 9], 1)],
)
def test_few_pairs_and_pairs_without_spread_prove_nothing(blocks: list[list[float]], effect: float) -> None:
    assert design_effect(blocks) == effect
    assert verdict(ratio_of(blocks, ALPHA)) == ("unclear" if len(blocks) == 3 or effect == math.inf else "slower")


def test_a_block_that_a_neighbour_spoilt_does_not_spoil_the_others() -> None:
    """Four of six pairs of one block were hit: its median has moved by half, and its pairs show that they scatter."""
    dice = np.random.default_rng(3)
    fine = [(0.01 * dice.standard_t(3, 6)).tolist() for _ in range(5)]
    spoilt = [[-0.6, 0.0, -0.7, 0.01, -0.4, -0.5], *fine]

    assert design_effect(spoilt) < 3
    assert design_effect([[-0.51, -0.5, -0.49, -0.5, -0.52, -0.5], *fine]) > 30
    assert verdict(ratio_of(spoilt, ALPHA)) == verdict(ratio_of([*fine, fine[0]], ALPHA)) == "same"


@pytest.mark.parametrize("between", [0.0, 0.01, 0.02, 0.03])
def test_unchanged_code_is_hardly_ever_called_slower_and_the_interval_holds_the_truth(between: float) -> None:
    ratios = [ratio_of(simulated(0.0, between, 9, seed), ALPHA) for seed in range(400)]

    found, bound = [verdict(ratio) for ratio in ratios], 400 * ALPHA / 2 + 3 * math.sqrt(400 * ALPHA / 2)
    assert found.count("slower") <= bound
    assert found.count("faster") <= bound
    held = sum((r.low or 0) <= 1 <= (r.high or 9) for r in ratios) / 400
    assert held >= 1 - ALPHA - 3 * math.sqrt(ALPHA * (1 - ALPHA) / 400) or between == 0.03
    # Blocks that differ widen the interval.
    alike, apart = ratio_of(simulated(0.0, 0.0, 9, seed=1), ALPHA), ratio_of(simulated(0.0, 0.05, 9, seed=1), ALPHA)
    assert apart.design_effect > 3 > alike.design_effect
    assert (apart.high or 9) - (apart.low or 0) > 1.5 * ((alike.high or 9) - (alike.low or 0))


@pytest.mark.parametrize(
    ("low", "middle", "high", "word"),
    [
        (1.001, 1.03, 1.06, "slower"),
        (1.001, 1.015, 1.03, "same"),  # a change too small to have a name, and within 5 %
        (0.94, 0.97, 0.999, "faster"),
        (0.97, 0.985, 0.999, "same"),
        (0.951, 0.99, 1.01, "unclear"),  # 1 / 1.05 is 0.952
        (0.96, 1.0, 1.04, "same"),
        (0.9, 1.0, 1.04, "unclear"),
        (0.99, 1.1, 1.3, "unclear"),
        (0.7, 0.9, 1.01, "unclear"),
        (None, 1.5, None, "unclear"),
    ],
)
def test_the_words(low: float | None, middle: float, high: float | None, word: str) -> None:
    assert verdict(Ratio(middle, low, high, 1.0, 0.01)) == word


@pytest.mark.parametrize(("effect", "grade"), [(0.01, "A"), (0.015, "B"), (0.05, "C"), (0.07, "D"), (0.3, "F")])
def test_the_grade_says_what_could_have_been_seen(effect: float, grade: str) -> None:
    assert verdicts.grade(effect) == grade
