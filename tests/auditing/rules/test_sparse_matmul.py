"""Products with matrices that are nearly all zeros."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "sparse-matmul"
N = 600
RING = np.zeros((N, N), np.float32)
RING[np.arange(N), (np.arange(N) + 1) % N] = 1.0
X = jnp.ones((N, 4))


def in_a_loop(a: Any, x: Any) -> Any:
    return jax.lax.scan(lambda x, _: (jnp.tanh(a @ x), None), x, length=3)[0]


def closed_over(x: Any) -> Any:
    return RING.T @ x


def through_a_loop_of_unknown_length(a: Any, x: Any) -> Any:
    return jax.lax.while_loop(lambda x: x.sum() > 1e9, lambda x: x @ a.T, x.T)


@pytest.mark.parametrize(
    ("fn", "given"), [(in_a_loop, (RING, X)), (closed_over, (X,)), (through_a_loop_of_unknown_length, (RING, X))]
)
def test_a_matrix_of_few_entries_is_found_with_their_number(ask_about: Any, fn: Any, given: Any) -> None:
    answered = ask_about(ID, fn, *given, ratio=0.2)

    assert answered.one.title == "multiplies by f32[600,600]; 0.17 % of it is not zero"
    assert answered.one.seen[0].startswith("600 of 360 k entries, in 1.37 MiB at ")
    assert answered.one.where == (__file__, fn.__code__.co_firstlineno + 1)
    assert "segment_sum" in answered.one.advice
    assert answered.one.gain.startswith("measured: ")


def full_after_a_few(a: Any, x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, a: a @ a, a) @ x


@pytest.mark.parametrize(
    ("fn", "given"),
    [
        (in_a_loop, (np.zeros((N, N), np.float32), X)),  # is to be filled
        (in_a_loop, (np.ones((N, N), np.float32), X)),
        (in_a_loop, (RING[:400, :400], X[:400])),  # small
        (full_after_a_few, (RING, X)),  # the loop carries it
        (lambda a, x: a + x.sum(), (RING, X)),
    ],
)
def test_what_is_to_be_filled_full_small_or_no_factor_is_fine(ask_about: Any, fn: Any, given: Any) -> None:
    assert ask_about(ID, fn, *given).outcome == "fine"
