"""Sorts of which a few elements are used."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

ID = "sort-top-k"
SCORES = "f32[64,4096]"


def best(scores: Any) -> Any:
    order = jnp.argsort(scores)
    return order[:, -5:]


def test_it_names_the_line_and_compares_with_a_selection_of_the_same(ask_about: Any, result_of: Any) -> None:
    answered = ask_about(ID, best, SCORES, ratio=0.1)

    assert answered.one.where == (__file__, best.__code__.co_firstlineno + 1)
    ((before, after),) = answered.pairs
    np.testing.assert_array_equal(result_of(before), result_of(after))


def test_of_other_platforms_nothing_is_claimed(ask_about: Any) -> None:
    assert ask_about(ID, best, SCORES, parts={"platform": "gpu"}).outcome == "not checked"
