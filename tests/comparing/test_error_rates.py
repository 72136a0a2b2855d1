"""What is counted as an error, and what is not known of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from comparisons_by_hand import compared

from benchax.comparing.error_rates import ErrorRates, Trial
from benchax.model import Block, Failure

BROKEN = replace(compared(0, None), baseline_value=None, failure=Failure("timeout", "rounds", "too slow"))
FOUND = ErrorRates(
    (
        Trial("sum", 0.0, compared(0, 1.0)),
        Trial("sum", 0.0, compared(1, 1.05)),
        Trial("sum", 0.05, compared(2, 1.05)),
        Trial("sum", 0.05, BROKEN),
    ),
    elapsed_s=6.0,
)


def test_verdicts_are_counted_by_what_was_planted() -> None:
    unchanged, slower = FOUND.tallies()

    assert (unchanged.planted, dict(unchanged.verdicts)) == (0.0, {"same": 1, "slower": 1})
    assert (slower.planted, dict(slower.verdicts)) == (0.05, {"slower": 1})


def test_what_could_not_be_run_is_no_verdict() -> None:
    assert (FOUND.tally(0.05).judged, FOUND.tally(0.05).failed) == (1, 1)
    assert FOUND.per_verdict_s == 2.0


def test_without_a_verdict_nothing_is_claimed() -> None:
    found = ErrorRates((Trial("sum", 0.0, BROKEN),), elapsed_s=6.0)

    assert found.per_verdict_s is None
    assert found.effect("sum", 0.0) is None
    assert found.baseline_s("sum") is None
    assert found.tally(0.0).at_most("slower") == 1.0


def test_the_real_effect_is_that_of_all_trials_together() -> None:
    times = [1.04, 1.05, 1.06, 1.07] * 5
    trials = [
        Trial("sum", 0.05, compared(0, 1.05, blocks=(Block(0, (1.0,) * 20, tuple(t + shift for t in times)),)))
        for shift in (-0.001, 0.001)
    ]

    effect = ErrorRates(tuple(trials)).effect("sum", 0.05)

    assert effect is not None
    assert (effect.pairs, effect.blocks) == (40, 2)
    assert effect.ratio == pytest.approx(1.055, abs=0.002)
