"""Sorts of which a few elements are used."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "sort-top-k"
SCORES = "f32[64,4096]"


def best(scores: Any) -> Any:
    order = jnp.argsort(scores)
    return order[:, -5:]


@pytest.mark.parametrize(
    ("fn", "used"),
    [
        (best, "the 5 largest"),
        (lambda x: jnp.argsort(x)[:, ::-1][:, :5], "the 5 largest"),
        (lambda x: jnp.argsort(-x)[:, :5], "the 5 smallest"),
        (lambda x: jnp.sort(x)[:, :1], "the 1 smallest"),
        (lambda x: jnp.argsort(x, descending=True)[:, :9], "the 9 largest"),
        (lambda x: (s := jnp.sort(x))[:, -3:] - s[:, :2].sum(), "the 2 smallest and the 3 largest"),
        (jax.vmap(lambda x: jnp.argsort(x)[-5:]), "the 5 largest"),
        (lambda x: jax.lax.map(lambda row: jnp.sort(row)[-5:], jnp.tile(x, (1, 8))), "the 5 largest"),
    ],
)
def test_a_sort_of_which_an_end_is_used_is_found(ask_about: Any, fn: Any, used: str) -> None:
    assert ask_about(ID, fn, SCORES).one.title.endswith(f"elements and uses {used}")


def test_it_names_the_line_and_compares_with_a_selection_of_the_same(ask_about: Any, result_of: Any) -> None:
    answered = ask_about(ID, best, SCORES, ratio=0.1)

    assert answered.one.where == (__file__, best.__code__.co_firstlineno + 1)
    ((before, after),) = answered.pairs
    np.testing.assert_array_equal(result_of(before), result_of(after))


@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (lambda x: jax.lax.top_k(x, 5), (SCORES,)),
        (jnp.sort, (SCORES,)),
        (lambda x: jnp.sort(x)[:, 2048:2049], (SCORES,)),
        (lambda x: jnp.sort(x)[:, -2048:], (SCORES,)),
        (jnp.median, (SCORES,)),
        (lambda x: (s := jnp.sort(x))[:, -5:] / s.sum(), (SCORES,)),
        (best, ("f32[2,100]",)),
        (best, ("bf16[64,4096]",)),
        (best, ("i32[64,4096]",)),
    ],
)
def test_what_needs_the_order_or_would_gain_nothing_is_fine(ask_about: Any, fn: Any, inputs: Any) -> None:
    assert ask_about(ID, fn, *inputs).outcome == "fine"


def test_of_other_platforms_nothing_is_claimed(ask_about: Any) -> None:
    assert ask_about(ID, best, SCORES, parts={"platform": "gpu"}).outcome == "not checked"
