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


def test_products_in_loops_branches_and_checkpoints_are_reached() -> None:
    def steps(x, is_twice):
        x = jax.lax.fori_loop(0, 3, lambda i, y: y @ y, x)
        x = jax.lax.while_loop(lambda y: y.sum() < 0, lambda y: y @ y, x)
        x = jax.lax.cond(is_twice, lambda y: y @ y, lambda y: y, x)
        return jax.checkpoint(lambda y: y @ y)(x)

    x = jnp.eye(4, dtype=jnp.bfloat16)

    fn = wide(steps, x, True)

    text = str(jax.make_jaxpr(fn)(x, True))
    assert text.count("preferred_element_type=float32") == text.count("dot_general") == 4
    np.testing.assert_array_equal(fn(x, True), x)


def by_scan(x):
    return jax.lax.scan(lambda total, each: (total + each, total), jnp.zeros((), x.dtype), x)[0]


def by_scan_in_a_tree(x):
    def add(state, each):
        return {"count": state["count"] + 1, "total": each + state["total"]}, None

    start = {"count": 0, "total": jnp.zeros((), x.dtype)}
    return jax.lax.scan(add, start, x)[0]["total"]


def by_while(x):
    def add(state):
        return state[0] + 1, state[1] + x[state[0]]

    return jax.lax.while_loop(lambda s: (s[0] < len(x)) & (s[1] < 1e6), add, (0, jnp.zeros((), x.dtype)))[1]


def by_fori(x):
    return jax.lax.fori_loop(0, len(x), lambda i, total: total + x[i], jnp.zeros((), x.dtype))


@pytest.mark.parametrize("fn", [by_scan, by_scan_in_a_tree, by_while, by_fori])
def test_what_a_loop_adds_up_is_carried_in_float32(fn) -> None:
    """In bf16 10,000 ones are 256: from there on 1 is less than half a digit."""
    ones = jnp.ones(10_000, jnp.bfloat16)

    assert (fn(ones), wide(fn, ones)(ones)) == (256, jnp.bfloat16(10_000))


def test_the_sums_so_far_are_wide_too() -> None:
    def cumulated(x):
        return jax.lax.scan(lambda total, each: (total + each,) * 2, jnp.zeros((), x.dtype), x)[1]

    ones = jnp.ones(1000, jnp.bfloat16)

    np.testing.assert_array_equal(wide(cumulated, ones)(ones), jnp.arange(1, 1001).astype(jnp.bfloat16))


def test_gradients_that_a_loop_adds_up_are_wide() -> None:
    def grads(w, xs):
        def add(total, x):
            return jax.tree.map(jnp.add, total, jax.grad(lambda w: (w * x).sum())(w)), None

        return jax.lax.scan(add, jnp.zeros_like(w), xs)[0]

    w, xs = jnp.ones(4, jnp.bfloat16), jnp.ones((2000, 4), jnp.bfloat16)

    np.testing.assert_array_equal(wide(grads, w, xs)(w, xs), jnp.full(4, 2000, jnp.bfloat16))


def test_a_carry_that_is_no_sum_is_left() -> None:
    def decayed(x):
        return jax.lax.scan(lambda c, each: (c * each, None), jnp.ones((), x.dtype), x)[0]

    with pytest.raises(NotAvailable, match="no product and no sum of bf16 or f16"):
        wide(decayed, "bf16[8]")


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
