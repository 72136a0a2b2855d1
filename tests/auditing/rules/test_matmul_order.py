"""Chains of products."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

ID = "matmul-order"
A, B, X = "f32[600,500]", "f32[500,400]", "f32[400,2]"


def chain(a: Any, b: Any, x: Any) -> Any:
    return jnp.tanh(a @ b @ x)


def test_it_names_the_line_the_work_and_compares_orders_of_the_same_result(ask_about: Any, result_of: Any) -> None:
    answered = ask_about(ID, chain, A, B, X, ratio=0.2)

    assert answered.one.where == (__file__, chain.__code__.co_firstlineno + 1)
    assert answered.one.seen[0] == "241 MFLOP in this order, 2.00 MFLOP in the other"
    assert answered.one.gain.endswith(", of this product alone")
    ((before, after),) = answered.pairs
    np.testing.assert_allclose(result_of(before), result_of(after), rtol=1e-3, atol=1e-2)
