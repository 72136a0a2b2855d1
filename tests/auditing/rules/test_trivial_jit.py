from __future__ import annotations

import jax
import pytest
from evidence_by_hand import evidence, judged

from benchax.auditing.rule import NotApplicable
from benchax.auditing.rules.trivial_jit import MANY_CALLS, fewest_calls, trivial_jit
from benchax.errors import NotMeasured


@jax.jit
def trivial(x):
    return x + 1


def check(eager_s: float, jitted_s: float, **more):
    return list(trivial_jit.check(evidence(trivial, "f32[8]", eager_s=eager_s, jitted_s=jitted_s, **more)))


def test_a_jit_that_saves_hardly_anything_is_found_with_the_number_of_calls() -> None:
    """The pairs are on 10 µs: at best 2.01 times as long, which saves 10.2 µs of each call."""
    (finding,) = check(6e-6, 3e-6, build_s=1.0, comparison=judged(2.0))

    assert finding.title == "compiling pays from 98,040 calls on at best"
    assert finding.gain is None
    assert finding.where == (__file__, trivial.__wrapped__.__code__.co_firstlineno + 1)


def test_where_the_unjitted_function_is_faster_the_gain_is_measured() -> None:
    (finding,) = check(3e-6, 6e-6, comparison=judged(0.5))

    assert finding.title == "compiling never pays"
    assert finding.gain is not None
    assert finding.gain.startswith("measured: 10.0 µs → 5.00 µs")


def test_a_jit_that_pays_soon_is_fine_without_a_comparison() -> None:
    assert check(3e-3, 1e-3) == []


def test_medians_of_a_noisy_moment_are_no_finding_where_pairs_say_otherwise() -> None:
    assert check(1e-3, 2e-3, comparison=judged(3.0)) == []


def test_an_unclear_comparison_is_said_to_be_one() -> None:
    with pytest.raises(NotMeasured, match=r"is undecided, though 1.00×.* was seen: too noisy"):
        check(3e-6, 6e-6, comparison=judged(1.0, verdict="unclear", why="too noisy"))


def test_a_function_that_is_not_jitted_is_not_asked() -> None:
    with pytest.raises(NotApplicable, match="not jitted"):
        list(trivial_jit.check(evidence(trivial.__wrapped__, "f32[8]", eager_s=1.0, jitted_s=1.0)))


def test_calls_are_counted_by_the_end_of_the_interval_that_speaks_for_compiling() -> None:
    assert fewest_calls(0.1, judged(2.0, high=2.0)) == MANY_CALLS
    assert fewest_calls(0.1, judged(1.0, high=1.0)) is None
