"""Sums of all pairs."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "broadcast-matmul"
A, B = "f32[256,32]", "f32[200,32]"


def distances(a: Any, b: Any) -> Any:
    difference = a[:, None, :] - b[None, :, :]
    return jnp.sqrt((difference**2).sum(-1))


@pytest.mark.parametrize(
    "fn",
    [
        distances,
        lambda a, b: jnp.square(a[:, None] - b).sum(axis=2),
        lambda a, b: jnp.mean(jnp.abs(a[:, None] - b) ** 2, axis=-1),
        lambda a, b: jnp.sum(a[:, None] * b[None], -1),
        jax.grad(lambda a, b: distances(a, b).sum()),
        lambda a, b: ((a[:, None] - b[None]) ** 2 / (1 + b**2)[None]).sum(-1),
        lambda a, b: (0.5 * jnp.square(a[:, None] - b)).sum(-1),
        lambda a, b: -0.5 * jnp.sum(jnp.square((jnp.expand_dims(a, 1) - b) / 0.3), axis=-1),
        lambda a, b: (((a[:, None] - b[None]) * (1 + b[0] ** 2)) ** 2).sum(-1),
    ],
)
def test_a_sum_of_all_pairs_is_found(ask_about: Any, fn: Any) -> None:
    assert "256 × 200" in ask_about(ID, fn, A, B).one.seen[0]


def test_it_names_the_line_and_compares_with_a_product_of_the_same_results(ask_about: Any, result_of: Any) -> None:
    answered = ask_about(ID, distances, A, B, ratio=0.2)

    assert answered.one.where == (__file__, distances.__code__.co_firstlineno + 2)
    assert answered.one.gain.endswith(", of this sum alone")
    ((before, after),) = answered.pairs
    np.testing.assert_allclose(result_of(before), result_of(after), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (lambda a, b: a @ b.T, (A, B)),
        (lambda a, b: ((a[:, None] - b[None]) ** 2).sum(-1), ("f32[800,3]", "f32[800,3]")),
        (lambda a, b: ((a[:, None] - b[None]) ** 2).sum(0), (A, B)),
        (lambda a, b: (a * b).sum(-1), ("f32[2048,1024]", "f32[2048,1024]")),
        (lambda a, b: (a * b[0]).sum(-1), ("f32[2048,1024]", "f32[8,1024]")),
        (lambda a, b: jnp.abs(a[:, None] - b[None]).sum(-1), (A, B)),
        (lambda a, b: (((a[:, None] - b[None]) / (1 + jnp.abs(a[:, None] - b[None]))) ** 2).sum(-1), (A, B)),
        (lambda a, b: ((a[:, None] - b[None]) ** 2 / (1 + jnp.abs(a[:, None] - b[None]))).sum(-1), (A, B)),
    ],
)
def test_what_no_product_does_better_is_fine(ask_about: Any, fn: Any, inputs: Any) -> None:
    assert ask_about(ID, fn, *inputs).outcome == "fine"
