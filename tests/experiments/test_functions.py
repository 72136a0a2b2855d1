"""Cases reopened: under a jit, and two side by side on the same arguments."""

from __future__ import annotations

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.case import Case, make_case
from benchax.errors import NotAvailable
from benchax.experiments.functions import Converted, plain, side_by_side
from benchax.measuring.inputs import make_inputs
from benchax.measuring.program import program_of


@partial(jax.jit, static_argnames="axis", donate_argnums=0)
def jitted(state, x, axis=0):
    return state + x.sum(axis)


def called(case: Case):
    inputs = make_inputs(case, 0)
    args, kwargs = inputs.renewed()
    return program_of(case).call(*args, **kwargs)


def test_a_jitted_function_is_opened_with_what_it_declares() -> None:
    opened = plain(make_case(jitted, ("f32[3]", "f32[3,4]"), {"axis": 1}))

    assert (opened.fn, opened.static, opened.donate) == (jitted.__wrapped__, ("axis",), (0,))


def test_what_was_compiled_cannot_be_opened() -> None:
    compiled = jax.jit(lambda x: x).lower(jnp.ones(3)).compile()

    with pytest.raises(NotAvailable, match="cannot be reached"):
        plain(make_case(compiled, ("f32[3]",)))


def test_cases_with_the_same_inputs_stay_as_they_are() -> None:
    case = make_case(jnp.sort, ("f32[3]",))

    assert side_by_side(case, case) == (case, case)


def test_two_cases_with_inputs_of_their_own_give_what_each_gives_alone() -> None:
    case = plain(make_case(jitted, ("f32[3]", "f32[3,4]"), {"axis": 1}))
    other = Case(case.fn, Converted(case, 0, "bfloat16"), case.id, case.static, case.donate)

    one, two = side_by_side(case, other)

    assert one.inputs is two.inputs
    for alone, beside in ((case, one), (other, two)):
        assert called(beside).dtype == called(alone).dtype
        np.testing.assert_array_equal(called(beside), called(alone))


def test_beside_another_each_donates_its_own_arguments_only() -> None:
    case = plain(make_case(jitted, ("f32[3]", "f32[3,4]"), {"axis": 1}))
    other = Case(case.fn, Converted(case, 0, "bfloat16"), case.id, case.static, case.donate)

    one, two = side_by_side(case, other)

    assert (one.donate, two.donate) == ((0,), (3,))


def test_converted_inputs_are_those_of_the_case_in_another_precision() -> None:
    case = make_case(jnp.add, ("f32[3]", "i32[3]"))
    original = make_inputs(case, 7).args

    (floats, integers), _ = Converted(case, 7, "bfloat16")()

    np.testing.assert_array_equal(floats, original[0].astype("bfloat16"))
    assert integers.dtype == jnp.int32
