"""Verification, end to end, of programs that are right and of programs that are wrong: no false alarm, no false trust."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from programs_to_verify import HONEST, WRONG

from benchax.measuring.verification import Undecided, verify

UNDECIDED_IN_FLOAT64 = {
    "svd_of_low_rank",
    "inverse_of_hilbert",
    "sum_to_zero",
    "mean_of_centred",
    "difference_of_sums",
    "added_and_taken",
    "rotation_residual",
    "inverse_residual",
    "expm1_by_hand",
    "argmax_of_a_tie",
    "floor_on_the_edge",
    "logistic_map",
    "fft_and_back",
    "polynomial",
}
"""All that they return is rounding; compared with the eager result, that need not show."""


@pytest.mark.parametrize("name", HONEST)
def test_a_right_result_is_never_called_wrong(name: str, subject: Any) -> None:
    fn, inputs = HONEST[name]
    made = subject(fn, *inputs)

    for mode in ("eager", "float64"):
        try:
            numerics = verify(made, mode)
        except Undecided as error:
            assert name in UNDECIDED_IN_FLOAT64, error
        else:
            assert numerics.agrees, numerics.why


@pytest.mark.parametrize("mode", ["eager", "float64"])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_result_is_always_called_wrong(name: str, mode: str, subject: Any) -> None:
    fn, inputs = WRONG[name]

    numerics = verify(subject(fn, *inputs), mode)

    assert not numerics.agrees
    assert numerics.why


def test_a_difference_that_rounding_makes_alone_is_neither(subject: Any) -> None:
    """200 % of the largest value: no error could be seen, and none is denied."""

    def residual(x: Any) -> Any:
        return (x * 1.1 - x) - (x * 0.1) * (2.0 if isinstance(x, jax.core.Tracer) else 1.0) / 1.0

    chaotic = HONEST["logistic_map"][0]
    made = subject(lambda x: chaotic(x * (1 + 1e-7 * isinstance(x, jax.core.Tracer))), jnp.array([0.3, 0.41, 0.77]))

    with pytest.raises(Undecided, match=r"it cannot be told whether the output is right: it differs by \d+ % of its"):
        verify(made, "eager")
    assert not verify(subject(residual, jnp.linspace(1.0, 2.0, 50)), "eager").agrees
