"""Accumulating in float32: what is rewritten, what is left, and that the function stays the same function."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.case import make_case
from benchax.errors import NotAvailable
from benchax.experiments.variants.precision import Accumulated
from benchax.measuring.inputs import make_inputs


def wide(fn, *args):
    return Accumulated().change(make_case(fn, args)).case.fn


def test_products_ask_for_float32_and_give_what_they_gave() -> None:
    x = jnp.ones((4, 4), jnp.bfloat16)

    fn = wide(lambda x: {"y": x @ x}, x)

    assert "preferred_element_type=float32" in str(jax.make_jaxpr(fn)(x))
    assert fn(x)["y"].dtype == jnp.bfloat16


def test_a_running_sum_is_closer_to_float64_than_in_bfloat16() -> None:
    x = jnp.asarray(np.random.default_rng(0).random(2000), jnp.bfloat16)
    exact = np.cumsum(np.asarray(x, np.float64))

    ours = np.asarray(wide(jnp.cumsum, x)(x), np.float64)

    assert abs(ours - exact).max() < abs(np.asarray(jax.jit(jnp.cumsum)(x), np.float64) - exact).max()


def test_products_inside_an_inner_jit_are_reached() -> None:
    x = jnp.ones((4, 4), jnp.float16)

    fn = wide(lambda x: jax.jit(lambda y: y @ y)(x) + x.mean(), x)

    np.testing.assert_array_equal(fn(x), jnp.full((4, 4), 5.0, jnp.float16))
    assert "preferred_element_type=float32" in str(jax.make_jaxpr(fn)(x))


def test_bodies_of_loops_are_left_and_counted() -> None:
    def loop(x):
        return jax.lax.fori_loop(0, 3, lambda i, y: y @ y, x)

    with pytest.raises(NotAvailable, match="1 stand in loops and branches"):
        wide(loop, "bf16[4,4]")


def test_static_arguments_and_other_objects_pass_through() -> None:
    case = make_case(
        lambda x, axis, name=None: (x @ x.T).sum(axis), ("bf16[2,3]", 1), {"name": "a"}, static=(1, "name")
    )

    changed = Accumulated().change(case)

    inputs = make_inputs(changed.case, 0)
    assert changed.case.fn(*inputs.args, **inputs.kwargs).shape == (2,)


def test_float32_has_nothing_to_widen() -> None:
    with pytest.raises(NotAvailable, match="no product and no sum of bf16 or f16"):
        wide(jnp.dot, "f32[4,4]", "f32[4,4]")
