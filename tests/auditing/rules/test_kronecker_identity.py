"""Products with Kronecker products of identities."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "kronecker-identity"
A, X = np.ones((2, 2), np.float32), np.ones(512, np.float32)
EYE = np.eye(256, dtype=np.float32)


def gate(a: Any, x: Any) -> Any:
    return jnp.kron(jnp.eye(16), jnp.kron(a, jnp.eye(16))) @ x


def in_a_loop(a: Any, x: Any) -> Any:
    return jax.lax.fori_loop(0, 3, lambda _, x: gate(a, x), x)


@pytest.mark.parametrize(
    "fn",
    [
        gate,
        in_a_loop,
        lambda a, x: jnp.kron(a, jnp.eye(256)) @ x,
        lambda a, x: x @ jnp.kron(jnp.eye(256), a),
        lambda a, x: jnp.kron(jnp.eye(256, dtype=jnp.complex64), a) @ x,
        lambda a, x: jax.grad(lambda a: jnp.sum(gate(a, x) ** 2))(a),
    ],
    ids=["between two", "in a loop", "on the right", "from the left", "complex", "differentiated"],
)
def test_a_small_matrix_that_is_blown_up_by_identities_is_found(ask_about: Any, fn: Any) -> None:
    finding = ask_about(ID, fn, A, X).one

    assert finding.title.endswith("[512,512], the Kronecker product of 2 rows with identities")
    assert finding.seen[1] == "along one axis it takes 1 in 256 of these operations"


def test_the_line_of_the_product_is_named(ask_about: Any) -> None:
    assert ask_about(ID, gate, A, X).one.where == (__file__, gate.__code__.co_firstlineno + 1)


@pytest.mark.parametrize(
    "fn",
    [
        lambda a, x: jnp.kron(jnp.ones((256, 256)), a) @ x,
        lambda a, x: jnp.kron(jnp.eye(64), a) @ x[:128],
        lambda a, x: jnp.eye(512) @ x,
        lambda a, x: jnp.einsum("ij,ljr->lir", a, x.reshape(16, 2, 16)).reshape(-1),
        lambda a, x: jnp.kron(jnp.eye(2), jnp.outer(x[:256], x[:256])) @ x,
    ],
    ids=["no identity", "small", "an identity alone", "along the axis", "a large factor"],
)
def test_other_products_are_fine(ask_about: Any, fn: Any) -> None:
    assert ask_about(ID, fn, A, X).outcome == "fine"
