"""Inverses that are made for a product with a few columns."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.scipy.linalg import cho_factor, cho_solve, solve, solve_triangular

ID = "explicit-inverse"
A, B, V = "f32[400,400]", "f32[400,3]", "f32[400]"
EYE = 400


def invert(a: Any, b: Any) -> Any:
    inverse = jnp.linalg.inv(a)
    return jnp.tanh(inverse @ b)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (invert, (A, B)),
        (jax.grad(lambda a, b: invert(a, b).sum()), (A, B)),
        (jax.value_and_grad(lambda b, a: invert(a, b).sum()), (B, A)),
        (lambda a, v: v @ jnp.linalg.inv(a) @ v, (A, V)),
        (lambda a, b: (inverse := jnp.linalg.inv(a)) @ b + inverse.T @ b, (A, B)),
        (lambda a, v: jnp.einsum("i,ij,j->", v, jnp.linalg.inv(a), v), (A, V)),
        (lambda a, b: jnp.linalg.solve(a, jnp.eye(EYE)) @ b, (A, B)),
        (lambda a, b: solve(a, jnp.eye(EYE), assume_a="pos") @ b, (A, B)),
        (lambda a, b: cho_solve(cho_factor(a), jnp.eye(EYE)) @ b, (A, B)),
        (lambda a, b: solve_triangular(a, jnp.eye(EYE), lower=True) @ b, (A, B)),
        (lambda a, b: jax.vmap(invert)(jnp.stack([a, a]), jnp.stack([b, b])), (A, B)),
        (lambda a, b: jax.lax.fori_loop(0, 3, lambda _, b: invert(a, b), b), (A, B)),
    ],
)
def test_an_inverse_for_a_few_columns_is_found(ask_about: Any, fn: Any, inputs: Any) -> None:
    finding = ask_about(ID, fn, *inputs).one

    assert (finding.severity, finding.title.split(",")[0]) == ("warning", "inverts a matrix")


@pytest.mark.slow
def test_it_names_both_lines_and_compares_with_a_solve_of_the_same_result(ask_about: Any, result_of: Any) -> None:
    answered = ask_about(ID, invert, A, B, ratio=0.4)
    line = invert.__code__.co_firstlineno

    assert answered.one.where == (__file__, line + 1)
    assert answered.one.title == "inverts a matrix, f32[400,400], to multiply it by 3 columns"
    assert answered.one.seen[0] == "172 MFLOP for an inverse of 400 columns; 3 would do: 43.6 MFLOP"
    assert answered.one.seen[1] == f"multiplied at {__file__}:{line + 2}"
    assert answered.one.gain.endswith(", of this solve alone")
    ((before, after),) = answered.pairs
    np.testing.assert_allclose(result_of(before), result_of(after), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "advice"),
    [
        (lambda a, b: cho_solve(cho_factor(a), jnp.eye(EYE)) @ b, "cho_solve(factor, b)"),
        (lambda a, b: solve_triangular(a, jnp.eye(EYE), lower=True) @ b, "solve_triangular(l, b"),
    ],
)
def test_of_a_factor_the_advice_is_the_solve_that_takes_it(
    ask_about: Any, result_of: Any, fn: Any, advice: str
) -> None:
    answered = ask_about(ID, fn, A, B, ratio=0.4)

    assert advice in answered.one.advice
    ((before, after),) = answered.pairs
    np.testing.assert_allclose(result_of(before), result_of(after), rtol=1e-3, atol=1e-4)


def test_beside_much_other_work_it_is_an_info(ask_about: Any) -> None:
    def step(a: Any, b: Any) -> Any:
        return invert(a, b), jax.lax.fori_loop(0, 100, lambda _, x: x @ a, a)

    assert ask_about(ID, step, A, B).one.severity == "info"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (jnp.linalg.solve, (A, B)),
        (lambda a, b: cho_solve(cho_factor(a), b), (A, B)),
        (lambda a, b: jnp.linalg.inv(a), (A, B)),
        (lambda a, b: ((inverse := jnp.linalg.inv(a)) @ b, inverse), (A, B)),
        (lambda a, b: (inverse := jnp.linalg.inv(a)) @ b + jnp.log(jnp.diag(inverse)).sum(), (A, B)),
        (lambda a, x: x @ jnp.linalg.inv(a), (A, "f32[5000,400]")),
        (lambda a, b: jnp.linalg.inv(a) @ b, ("f32[64,64]", "f32[64]")),
        (lambda a, b: jnp.linalg.inv(a) @ jnp.linalg.inv(a), (A, B)),
        (jax.vmap(lambda a, b: jnp.linalg.inv(a) @ b), ("f32[5000,16,16]", "f32[5000,16]")),
        (lambda a, b: jax.lax.fori_loop(0, 3, lambda _, b: b - (a @ b), jnp.linalg.inv(a) @ a), (A, B)),
    ],
)
def test_what_needs_an_inverse_or_saves_little_is_fine(ask_about: Any, fn: Any, inputs: Any) -> None:
    assert ask_about(ID, fn, *inputs).outcome == "fine"
