"""Sums of all pairs."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

ID = "broadcast-matmul"
A, B = "f32[256,32]", "f32[200,32]"


def distances(a: Any, b: Any) -> Any:
    difference = a[:, None, :] - b[None, :, :]
    return jnp.sqrt((difference**2).sum(-1))


def test_it_names_the_line_and_compares_with_a_product_of_the_same_results(ask_about: Any, result_of: Any) -> None:
    answered = ask_about(ID, distances, A, B, ratio=0.2)

    assert answered.one.where == (__file__, distances.__code__.co_firstlineno + 2)
    assert answered.one.gain.endswith(", of this sum alone")
    ((before, after),) = answered.pairs
    np.testing.assert_allclose(result_of(before), result_of(after), rtol=1e-3, atol=1e-3)


def test_advice_that_was_timed_and_does_not_pay_is_no_finding(ask_about: Any) -> None:
    answered = ask_about(ID, distances, A, B, ratio=1.4)

    assert not answered.findings
    assert answered.why == "a matrix product: slower (0.714×, 0.709 – 0.719)"
