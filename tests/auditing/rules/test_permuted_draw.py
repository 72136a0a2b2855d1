"""Permutations of all rows for a few of them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

from benchax.auditing.recorder.views import Carried

ID = "permuted-draw"
KEY = jax.random.key(0)
X = jnp.zeros((60000, 2))


def batch(x: Any, key: Any) -> Any:
    rows = jax.random.permutation(key, x.shape[0])
    return x[rows[:256]]


def chosen(x: Any, key: Any) -> Any:
    return x[jax.random.choice(key, x.shape[0], (256,), replace=False)]


def in_a_loop(x: Any, key: Any) -> Any:
    return jax.lax.map(lambda key: batch(x, key), jax.random.split(key, 3))


@pytest.mark.parametrize("fn", [batch, chosen, in_a_loop])
def test_a_permutation_of_which_a_few_rows_are_used_is_found(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, X, KEY).one.title == "permutes 60.0 k rows to use 256 of them"


def test_the_line_of_the_permutation_is_named(ask_about: Any) -> None:
    assert ask_about(ID, batch, X, KEY).one.where == (__file__, batch.__code__.co_firstlineno + 1)


@pytest.mark.slow
@pytest.mark.parametrize(("calls", "fn", "count"), [(0, batch, 0), (20, batch, 1), (0, in_a_loop, 1)])
def test_what_a_program_does_once_may_cost_a_permutation(ask_about: Any, calls: int, fn: Any, count: int) -> None:
    parts = {"why_not_called": "its program has ended", "carried": Carried(calls, ())}

    assert len(ask_about(ID, fn, X, KEY, parts=parts).findings) == count


def an_epoch(x: Any, key: Any) -> Any:
    rows = jax.random.permutation(key, x.shape[0]).reshape(-1, 100)
    return jax.lax.map(lambda some: x[some].sum(), rows)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fn",
    [
        an_epoch,
        lambda x, key: x[jax.random.permutation(key, x.shape[0])[: len(x) // 2]],
        lambda x, key: x[jax.random.randint(key, (256,), 0, x.shape[0])],
        lambda x, key: x[jax.random.permutation(key, 1000)[:10]],
        lambda x, key: jax.lax.sort([x[:, 0], x[:, 1]], num_keys=1)[1][:5],
    ],
)
def test_permutations_that_are_used_and_draws_are_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, X, KEY).outcome == "fine"
