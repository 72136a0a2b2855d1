"""Chains of products."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

ID = "matmul-order"
A, B, X = "f32[600,500]", "f32[500,400]", "f32[400,2]"


def chain(a: Any, b: Any, x: Any) -> Any:
    return jnp.tanh(a @ b @ x)


@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (chain, (A, B, X)),
        (jax.grad(lambda a, b, x: chain(a, b, x).sum()), (A, B, X)),
        (lambda a, b, x: a @ b @ x, (A, B, "f32[400]")),
        (lambda x, a, b: x @ (a @ b), ("f32[512,512]", "f32[512,4]", "f32[4,512]")),
        (lambda q, k, v: jnp.einsum("bij,bjd->bid", jnp.einsum("bid,bjd->bij", q, k), v), ("f32[2,1024,16]",) * 3),
        (lambda a, b, x: jax.lax.fori_loop(0, 3, lambda _, x: a @ b @ x, x), ("f32[400,400]", "f32[400,400]", X)),
    ],
)
def test_the_dearer_order_is_found(ask_about: Any, fn: Any, inputs: Any) -> None:
    assert "times the work" in ask_about(ID, fn, *inputs).one.title


def test_it_names_the_line_the_work_and_compares_orders_of_the_same_result(ask_about: Any, result_of: Any) -> None:
    answered = ask_about(ID, chain, A, B, X, ratio=0.2)

    assert answered.one.where == (__file__, chain.__code__.co_firstlineno + 1)
    assert answered.one.seen[0] == "241 MFLOP in this order, 2.00 MFLOP in the other"
    assert answered.one.gain.endswith(", of this product alone")
    ((before, after),) = answered.pairs
    np.testing.assert_allclose(result_of(before), result_of(after), rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize(
    ("fn", "inputs"),
    [
        (lambda a, b, x: a @ (b @ x), (A, B, X)),
        (lambda a, b, x: a @ b @ x, (A, B, "f32[400,600]")),
        (lambda a, b, x: (a @ b) @ x + (a @ b).sum(), ("f32[6,5]", "f32[5,4]", "f32[4,2]")),
        (lambda a, b, x: (c := a @ b) @ x + c.sum(), (A, B, X)),
        (lambda q, k, v: jax.nn.softmax(q @ k.T) @ v, ("f32[1024,16]",) * 3),
    ],
)
def test_what_the_other_order_does_not_save_is_fine(ask_about: Any, fn: Any, inputs: Any) -> None:
    assert ask_about(ID, fn, *inputs).outcome == "fine"
