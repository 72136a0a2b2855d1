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

    assert finding.title.startswith("makes f32[64,64] of derivatives for ")
    assert "along 64 directions" in finding.seen[0]


def solve(x: Any, v: Any, **options: Any) -> Any:
    hessian = jax.hessian(energy)(x)
    return jax.scipy.sparse.linalg.cg(lambda u: hessian @ u + 0.1 * u, v, **options)[0]


def power_iteration(x: Any, v: Any, steps: Any = 8) -> Any:
    hessian = jax.hessian(energy)(x)
    return jax.lax.fori_loop(0, steps, lambda i, u: hessian @ u, v)


def test_few_products_in_a_loop_are_found(ask_about: Any) -> None:
    finding = ask_about(ID, power_iteration, X, V).one

    assert (finding.title, finding.severity) == (
        "makes f32[64,64] of derivatives for products with 8 vectors",
        "warning",
    )
    assert finding.where == (__file__, power_iteration.__code__.co_firstlineno + 1)


@pytest.mark.parametrize(
    ("options", "severity", "said"),
    [({"maxiter": 8}, "warning", "its iterations, which are 9 at most"), ({}, "info", "each of its iterations")],
)
def test_a_matrix_for_an_iterative_solver_is_found(ask_about: Any, options: Any, severity: str, said: str) -> None:
    finding = ask_about(ID, lambda x, v: solve(x, v, **options), X, V).one

    assert (finding.title, finding.severity) == ("makes f32[64,64] of derivatives for an iterative solver", severity)
    assert said in finding.seen[0]
    assert finding.where == (__file__, solve.__code__.co_firstlineno + 1)


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
        lambda x, v: power_iteration(x, v, 60),
        lambda x, v: power_iteration(x, v, x[0].astype(int)),
        lambda x, v: jnp.eye(64) @ v + jax.grad(energy)(x),
        lambda x, v: jax.vmap(jax.grad(energy))(jnp.eye(64) * x) @ v,
    ],
)
def test_what_needs_the_matrix_or_makes_none_is_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, X, V).outcome == "fine"
