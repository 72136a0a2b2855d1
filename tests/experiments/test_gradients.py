"""A function's gradient as a case: what is taken for a loss, and what the gradient is taken with respect to."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.case import make_case
from benchax.errors import NotAvailable
from benchax.experiments.gradients import differentiate
from benchax.measuring.inputs import make_inputs


def loss(w, x, power=2):
    return ((x @ w) ** power).mean()


def test_it_is_jaxs_own_gradient() -> None:
    found = differentiate(make_case(loss, ("f32[4]", "f32[8,4]")), 0)

    inputs = make_inputs(found.case, 0)
    value, grads = found.case.fn(*inputs.args)

    expected_value, expected = jax.value_and_grad(loss)(*inputs.args)
    assert value == expected_value
    np.testing.assert_array_equal(grads, expected)


def test_the_gradient_is_taken_in_the_first_argument_of_floats() -> None:
    found = differentiate(make_case(lambda n, w: (w * n).sum(), ("i32[]", "f32[4]")), 0)

    assert (found.gradient.argument, found.name) == (1, "w")


def test_static_arguments_of_a_jit_stay_static() -> None:
    found = differentiate(make_case(jax.jit(loss, static_argnums=2), ("f32[4]", "f32[8,4]", 3)), 0)

    assert found.case.static == (2,)


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (lambda x: x, r"returns float32\[4\]"),
        (lambda x: x.sum() > 0, r"returns bool\[\]"),
        (lambda x: (x.sum(), x), "returns 2 arrays in a structure"),
        (lambda x: {"loss": x.sum()}, "returns 1 arrays in a structure"),
    ],
)
def test_what_is_no_loss_is_refused(fn, why: str) -> None:
    with pytest.raises(NotAvailable, match=why):
        differentiate(make_case(fn, ("f32[4]",)), 0)


def test_without_floats_there_is_no_slope() -> None:
    with pytest.raises(NotAvailable, match="no argument by position consists of float arrays"):
        differentiate(make_case(lambda x: jnp.float32(0) * x.sum(), ("i32[4]",)), 0)
