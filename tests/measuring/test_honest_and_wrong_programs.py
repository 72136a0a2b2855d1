"""Verification, end to end: no right program is called wrong, and no wrong one right."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest
from programs_to_verify import HONEST, WRONG

from benchax.errors import NotMeasured
from benchax.measuring.record import Notes
from benchax.measuring.verification import verify

# 230 programs, each compiled in several ways, one of them as users compile it
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("optimized")]

UNDECIDED = {
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
"""What they return is made of rounding."""


def verdict(subject: Any, mode: str) -> str:
    notes = Notes()
    try:
        numerics = verify(subject, mode, notes=notes)
    except NotMeasured as error:
        return "undecided" if notes.undecided else error.problem
    return "agrees" if numerics.agrees else numerics.why


@pytest.mark.parametrize("name", HONEST)
def test_a_right_result_is_never_called_wrong(name: str, subject: Any) -> None:
    fn, inputs = HONEST[name]
    made = subject(fn, *jax.tree.map(jnp.asarray, inputs))
    expected = {"agrees", "undecided"} if name in UNDECIDED else {"agrees"}

    found = {verdict(made, "eager"), verdict(made, "float64")}

    assert found <= expected


@pytest.mark.parametrize("mode", ["eager", "float64"])
@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_result_is_always_called_wrong(name: str, mode: str, subject: Any) -> None:
    fn, inputs = WRONG[name]

    numerics = verify(subject(fn, *jax.tree.map(jnp.asarray, inputs)), mode)

    assert not numerics.agrees
    assert numerics.why
