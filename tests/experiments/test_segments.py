"""Functions in segments: the same function, with less to keep."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.errors import NotAvailable
from benchax.experiments.checkpoints import Segmented


def chain(x, power=2, *, scale=1.0):
    for _ in range(8):
        x = jnp.tanh(jax.nn.relu(x) + scale)
    return {"y": (x**power).sum(), "scale": jnp.float32(scale)}


def test_values_and_gradients_stay() -> None:
    x = jnp.linspace(-1, 1, 16)

    ours, expected = (jax.grad(lambda x, fn=fn: fn(x, 3, scale=0.5)["y"])(x) for fn in (Segmented(chain), chain))

    np.testing.assert_allclose(ours, expected, rtol=1e-6)
    assert jax.tree.structure(Segmented(chain)(x)) == jax.tree.structure(chain(x))


def test_each_segment_is_a_checkpoint() -> None:
    def ten(x):
        for _ in range(9):
            x = jnp.sin(x)
        return x.sum()

    jaxpr = jax.make_jaxpr(Segmented(ten))(jnp.ones(4))

    assert [len(eqn.params["jaxpr"].eqns) for eqn in jaxpr.eqns] == [4, 4, 2]


def test_an_input_that_is_returned_as_it_is_passes() -> None:
    def fn(x, y):
        return jnp.sin(jnp.sin(jnp.sin(jnp.sin(x)))), y, 3

    found = Segmented(fn)(jnp.ones(2), jnp.zeros(2))

    np.testing.assert_array_equal(found[1], jnp.zeros(2))
    assert found[2] == 3


def test_what_is_too_short_says_so() -> None:
    with pytest.raises(NotAvailable, match="too few operations for segments"):
        Segmented(jnp.sin)(jnp.ones(2))
