"""Pairs of cases as paired runs; what cannot be laid beside the other is a failure of its own."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp

from benchax.case import make_case
from benchax.comparing.sequential import Effort
from benchax.experiments.functions import Converted
from benchax.experiments.pair_timing import Pair, time_pairs
from benchax.options import resolve


def test_inputs_that_cannot_be_laid_beside_others_are_a_failure_and_no_exception() -> None:
    compiled = jax.jit(lambda x: x).lower(jnp.ones(3)).compile()
    case = make_case(compiled, ("f32[3]",), name="built")
    other = replace(case, inputs=Converted(case, 0, "bfloat16"))

    found = time_pairs([Pair("bf16", "baseline", case, "bf16", other)], resolve(), Effort(), lambda text: None)

    assert found["bf16"].failure is not None
    assert "cannot be reached" in found["bf16"].why
    assert found["bf16"].ratio is None


def test_nothing_to_compare_starts_nothing() -> None:
    assert time_pairs([], resolve(), Effort(), lambda text: None) == {}
