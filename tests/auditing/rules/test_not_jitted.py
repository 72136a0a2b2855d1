from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest
from evidence_by_hand import evidence, judged

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable
from benchax.auditing.rules.whole_calls import not_jitted
from benchax.case import make_case
from benchax.comparing.break_even import SAME_PROGRAM
from benchax.errors import NotMeasured
from benchax.model import Remark


def selu(x):
    return 1.05 * jnp.where(x > 0, x, 1.67 * jnp.exp(x) - 1.67)


@pytest.mark.slow
@pytest.mark.serial
def test_many_operations_one_by_one_are_found_with_the_measured_gain() -> None:
    (finding,) = not_jitted.check(Evidence(make_case(selu, ("f32[100000]",))))

    assert finding.title == "runs operation by operation"
    assert finding.gain is not None
    assert finding.gain.startswith("measured: ")
    assert finding.gain_s is not None
    assert finding.gain_s > 0
    assert "pays from" in finding.seen[0]
    assert finding.where == (__file__, selu.__code__.co_firstlineno)


def test_the_gain_is_that_of_the_pairs() -> None:
    e = evidence(selu, "f32[8]", eager_s=3e-3, jitted_s=1e-3, build_s=0.01, comparison=judged(0.5))

    (finding,) = not_jitted.check(e)

    assert finding.gain == "measured: 10.0 µs → 5.00 µs per call (2.00×, 1.98 – 2.02)"
    assert finding.gain_s == pytest.approx(5e-6)
    assert "pays from 2,000 calls on" in finding.seen[0]  # 10 ms over 5 µs
    assert "2.00× (1.98 – 2.02) faster" in finding.seen[0]  # one speedup, in both places
    assert finding.severity == "info"


def test_what_pays_soon_is_a_warning() -> None:
    (finding,) = not_jitted.check(
        evidence(selu, "f32[8]", eager_s=3e-3, jitted_s=1e-3, build_s=0.001, comparison=judged(0.5))
    )

    assert finding.severity == "warning"
    assert finding.advice.startswith("Decorate it with jax.jit where it is called by itself 200 times or more")


def test_one_operation_is_not_said_to_be_nothing_to_compare() -> None:
    same = Remark(SAME_PROGRAM, "info", "both run the same program")
    c = judged(0.5, remarks=(same,))

    (finding,) = not_jitted.check(
        evidence(lambda x: x + 1, "f32[8]", eager_s=2e-5, jitted_s=1e-5, build_s=0.01, comparison=c)
    )

    assert finding.title == "starts its one operation from Python"
    text = " ".join(finding.seen)
    assert text.startswith("Both calls run one program, and differ in how Python starts it. Compiling (10.0 ms) pays")
    assert text.endswith("(95 %: 1,981 – 2,021): 10.0 µs eager, 5.00 µs jitted, 2.00× (1.98 – 2.02) faster.")


def test_one_long_operation_is_fine_without_a_comparison() -> None:
    assert list(not_jitted.check(evidence(selu, "f32[8]", eager_s=1.05e-3, jitted_s=1e-3))) == []


@pytest.mark.parametrize("ratio", [1.0, 1.2])
def test_what_the_pairs_do_not_confirm_is_no_finding(ratio: float) -> None:
    assert list(not_jitted.check(evidence(selu, "f32[8]", eager_s=3e-3, jitted_s=1e-3, comparison=judged(ratio)))) == []


def test_what_the_pairs_could_not_tell_is_not_called_fine() -> None:
    """An eager step that was 24.6 times slower got a tick on a busy machine."""
    unclear = judged(1 / 24.6, verdict="unclear", why="a change below 97 % could have been missed")
    e = evidence(selu, "f32[8]", eager_s=24.6e-3, jitted_s=1e-3, comparison=unclear)

    with pytest.raises(NotMeasured) as error:
        list(not_jitted.check(e))

    assert error.value.problem.startswith("the comparison with jax.jit is undecided, though 24.6×")
    assert error.value.problem.endswith("could have been missed")


def test_a_jitted_function_is_not_asked() -> None:
    with pytest.raises(NotApplicable, match="it is jitted"):
        list(not_jitted.check(Evidence(make_case(jax.jit(selu), ("f32[8]",)))))


def test_without_time_for_a_comparison_nothing_is_claimed() -> None:
    e = evidence(selu, "f32[8]", eager_s=3e-3, jitted_s=1e-3)

    with pytest.raises(NotMeasured, match="used up"):
        list(not_jitted.check(e))
