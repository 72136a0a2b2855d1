"""Products with diagonal matrices, and products of which the diagonal is used."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "diagonal-matmul"
W, A, M = "f32[600]", "f32[600,100]", "f32[600,600]"


def weigh(w: Any, a: Any) -> Any:
    scaled = jnp.diag(w) @ a
    return jnp.tanh(scaled)


@pytest.mark.parametrize(
    "fn",
    [
        weigh,
        jax.grad(lambda w, a: weigh(w, a).sum()),
        lambda w, a: a.T @ jnp.diag(w),
        lambda w, a: a.T @ jnp.diag(w) @ a,
        lambda w, a: (jnp.eye(600) * w) @ a,
        lambda w, a: (w[:, None] * jnp.eye(600)) @ a,
        lambda w, a: jnp.where(jnp.eye(600, dtype=bool), w, 0.0) @ a,
        lambda w, a: jax.vmap(lambda w, a: jnp.diag(jnp.sqrt(w)) @ a)(jnp.stack([w, w]), jnp.stack([a, a])),
        lambda w, a: jax.lax.fori_loop(0, 3, lambda _, a: jnp.diag(w) @ a, a),
    ],
)
def test_a_product_with_a_diagonal_matrix_is_found(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, W, A).one.title.startswith("multiplies by a diagonal matrix, f32[")


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: jnp.trace(a @ b),
        lambda a, b: jnp.diag(a @ b),
        lambda a, b: jnp.einsum("ii->i", a @ b),
        lambda a, b: jax.vmap(lambda i: (a @ b)[i, i])(jnp.arange(len(a))),
        lambda a, b: jnp.sum(jnp.eye(600) * (a @ b)),
        lambda a, b: (a @ b)[jnp.arange(600), jnp.arange(600)],
        lambda a, b: jnp.diag(b - a @ b),
        lambda a, b: jnp.trace(jnp.exp(0.5 * (a @ b)) + a),
    ],
)
def test_a_product_of_which_only_the_diagonal_is_used_is_found(ask_about: Any, fn: Any) -> None:
    finding = ask_about(ID, fn, M, M).one

    assert finding.title == "makes all of a product, f32[600,600], and uses its diagonal"
    assert finding.seen[0].startswith("432 MFLOP for a product; 720 kFLOP would do")


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, b: jax.vmap(lambda b: jnp.diag(a @ b))(jnp.stack([b, b])),
        lambda a, b: jax.vmap(lambda b: jnp.trace(a @ b))(jnp.stack([b, b])),
        lambda a, b: jnp.diagonal(jnp.stack([a, b]) @ b, axis1=-2, axis2=-1),
        lambda a, b: jnp.trace(jnp.stack([a, b]) @ b, axis1=-2, axis2=-1),
    ],
)
def test_diagonals_of_a_batch_of_products_are_found(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, M, M).one.title.endswith(" and uses its diagonal")


def test_it_names_the_line_and_compares_with_scaling_of_the_same_result(ask_about: Any, result_of: Any) -> None:
    answered = ask_about(ID, weigh, W, A, ratio=0.2)

    assert answered.one.where == (__file__, weigh.__code__.co_firstlineno + 1)
    assert answered.one.seen[0].startswith("72.0 MFLOP for a product; 60.0 kFLOP would do")
    ((before, after),) = answered.pairs
    np.testing.assert_allclose(result_of(before), result_of(after), rtol=1e-5)


def test_the_trace_of_a_product_is_compared_with_that_of_the_same_factors(ask_about: Any, result_of: Any) -> None:
    ((before, after),) = ask_about(ID, lambda a, b: jnp.trace(a @ b), M, M, ratio=0.2).pairs

    np.testing.assert_allclose(result_of(before), result_of(after), rtol=1e-3, atol=1e-1)


@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (lambda w, a: w[:, None] * a, (W, A)),
        (lambda w, a: jnp.diag(w[:16]) @ a[:16], (W, A)),
        (lambda w, a: (jnp.eye(600, k=1) * w) @ a, (W, A)),
        (lambda w, a: (a @ a.T + jnp.diag(w)) @ a, (W, A)),
        (lambda w, a: jnp.where(jnp.eye(600, dtype=bool), w, 1.0) @ a, (W, A)),
        (lambda w, a: jax.jacfwd(lambda w: a.T @ w)(w), (W, A)),
        (lambda a, b: jnp.triu(a) @ b, (M, M)),
        (lambda a, b: jnp.trace(product := a @ b) + product.sum(), (M, M)),
        (lambda a, b: jnp.trace(a @ b, offset=1), (M, M)),
        (lambda a, b: (a @ b)[jnp.arange(600), jnp.arange(600)[::-1]], (M, M)),
        (lambda a, b: (a @ b)[jnp.arange(600), jnp.zeros(600, int)], (M, M)),
        (lambda a, b: jnp.diag((c := jnp.exp(a @ b)) + c.T) + c[0], (M, M)),
        (lambda a, b: jnp.diag(jnp.cumsum(a @ b, axis=0)), (M, M)),
        (lambda a, b: jnp.diagonal(jnp.stack([a, b]) @ b, axis1=0, axis2=1), (M, M)),
    ],
)
def test_what_needs_the_product_is_fine(ask_about: Any, fn: Any, inputs: Any) -> None:
    assert ask_about(ID, fn, *inputs).outcome == "fine"


def test_a_branch_that_only_prints_has_no_diagonal(ask_about: Any) -> None:
    def fn(x: Any) -> Any:
        jax.lax.cond(x.sum() > 0, lambda: jax.debug.print("positive"), lambda: None)
        return x @ x

    assert ask_about(ID, fn, "f32[64,64]").outcome == "fine"
