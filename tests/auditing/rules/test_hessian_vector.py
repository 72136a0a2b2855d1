"""Products with whole Jacobians and Hessians."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

ID = "hessian-vector"
X, V = "f32[64]", "f32[64]"


def energy(x: Any) -> Any:
    return jnp.sum(jnp.tanh(jnp.outer(x, x)))


def forces(x: Any) -> Any:
    return jnp.tanh(jnp.outer(x, x)) @ x


def curvature(x: Any, v: Any) -> Any:
    return v @ (jax.hessian(energy)(x) @ v)


@pytest.mark.parametrize(
    "fn",
    [
        curvature,
        lambda x, v: jax.jacfwd(forces)(x) @ v,
        lambda x, v: v @ jax.jacrev(forces)(x),
        lambda x, v: jax.jacobian(forces)(x).T @ jnp.stack([v, 2 * v], 1),
    ],
)
def test_a_matrix_of_derivatives_for_one_product_is_found(ask_about: Any, fn: Any) -> None:
    finding = ask_about(ID, fn, X, V).one

    assert finding.title == "makes f32[64,64] of derivatives for one product with it"
    assert "along 64 directions" in finding.seen[0]


def test_it_names_the_line_of_the_product(ask_about: Any) -> None:
    assert ask_about(ID, curvature, X, V).one.where == (__file__, curvature.__code__.co_firstlineno + 1)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x, v: jax.jvp(jax.grad(energy), (x,), (v,))[1],
        lambda x, v: jnp.linalg.solve(jax.hessian(energy)(x) + jnp.eye(64), v),
        lambda x, v: (j := jax.jacfwd(forces)(x)) @ jnp.diag(v) @ j.T,
        lambda x, v: (h := jax.hessian(energy)(x)) @ v + jnp.trace(h),
        lambda x, v: jax.jacfwd(forces)(x)[:2] @ v,
        lambda x, v: jnp.eye(64) @ v + jax.grad(energy)(x),
        lambda x, v: jax.vmap(jax.grad(energy))(jnp.eye(64) * x) @ v,
    ],
)
def test_what_needs_the_matrix_or_makes_none_is_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, X, V).outcome == "fine"
