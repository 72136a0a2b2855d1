from __future__ import annotations

import jax
import pytest
from evidence_by_hand import evidence, judged

from benchax.auditing.rule import NotApplicable
from benchax.auditing.rules.whole_calls import not_jitted, trivial_jit
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
    assert finding.advice.startswith("Decorate it with jax.jit where it is called by itself 100,000 times or more")
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


def test_without_an_interval_nothing_is_claimed() -> None:
    with pytest.raises(NotMeasured, match="has no interval"):
        check(3e-6, 6e-6, comparison=judged(1.0, low=None, high=None))


@pytest.mark.parametrize("build_s", [0.001, 0.04, 0.1, 0.2, 10.0])
@pytest.mark.parametrize("jitted_takes", [0.2, 0.5, 0.9, 1.5])
def test_of_one_function_jitted_and_not_at_most_one_rule_speaks_and_both_advise_the_same(
    build_s: float, jitted_takes: float
) -> None:
    """The eager call takes 10 µs; of the jitted function it is the candidate."""
    eager_s, jitted_s = 1e-5, 1e-5 * jitted_takes
    plain = evidence(
        trivial.__wrapped__, "f32[8]", eager_s=eager_s, jitted_s=jitted_s, build_s=build_s,
        comparison=judged(jitted_takes, baseline_value=eager_s, blocks=()),
    )  # fmt: skip
    jitted = judged(1 / jitted_takes, baseline_value=jitted_s, blocks=())

    without = list(not_jitted.check(plain))
    within = check(eager_s, jitted_s, build_s=build_s, comparison=jitted)

    assert len(without) + len(within) <= 1
    for finding in (*without, *within):
        pays = jitted_takes < 1
        assert finding.advice.startswith("Decorate it with jax.jit where" if pays else "Leave jax.jit away where")
        assert "nothing is to be done: a jit within a jit costs nothing" in finding.advice
