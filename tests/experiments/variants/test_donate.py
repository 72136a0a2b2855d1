"""Which arguments are donated."""

from __future__ import annotations

import jax
import pytest
from hypothesis import given as given_by_hypothesis
from hypothesis import settings
from hypothesis import strategies as st

from benchax import workloads
from benchax.case import make_case
from benchax.errors import NotAvailable, NotMeasured, UsageError
from benchax.experiments.variants.donate import Donate


def donated(fn, *args, given=None, **named):
    return Donate().change(make_case(fn, args, **named), given).case.donate


def test_an_argument_of_the_shape_and_dtype_of_an_output_is_donated() -> None:
    assert donated(lambda x, y: x + y.sum(), "f32[4]", "f32[8]") == (0,)


def test_an_output_takes_one_argument_over() -> None:
    assert donated(lambda x, y: x + y, "f32[4]", "f32[4]") == (0,)


def test_of_a_training_step_the_state_is_donated() -> None:
    (case,) = [case for case in workloads.cases() if case.id.name == "train_step"]

    assert Donate().change(case).case.donate == (0,)


def test_the_user_chooses() -> None:
    assert donated(lambda x, y: x + y, "f32[4]", "f32[4]", given="1") == (1,)


@pytest.mark.parametrize("given", ["2", "z", "-1", "", "0;1"])
def test_an_argument_that_there_is_not_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match=f"donate is given the argument {given!r}") as error:
        donated(lambda x, y: x + y, "f32[4]", "f32[4]", given=given)

    assert error.value.expected == "one of: x, y"


def moved(params, grads):
    return {"w": params["w"] - 0.1 * grads}


@pytest.mark.parametrize("given", ["params", "0", " params "])
def test_an_argument_is_named_as_its_author_calls_it(given: str) -> None:
    """docs/how-to/experiments.md has `--given donate=state`; positions are what jax.jit is given."""
    assert donated(jax.jit(moved), {"w": "f32[4]"}, "f32[4]", given=given) == (0,)


@settings(max_examples=40, deadline=None)
@given_by_hypothesis(st.text("0123,- xé²", max_size=6))
def test_any_text_names_arguments_or_is_refused(text: str) -> None:
    case = make_case(lambda x, y: x + y, ("f32[4]", "f32[4]"))
    try:
        chosen = Donate().change(case, text).case.donate
    except UsageError:
        return

    assert set(chosen) <= {0, 1}
    assert chosen


def test_nothing_fits() -> None:
    with pytest.raises(NotAvailable, match="no output could reuse"):
        donated(lambda x: x.sum(), "f32[4]")


def test_what_donates_already_has_nothing_to_show() -> None:
    with pytest.raises(NotMeasured, match="donates arguments as it is"):
        donated(jax.jit(lambda x: x + 1, donate_argnums=0), "f32[4]")


def test_operation_by_operation_nothing_can_be_donated() -> None:
    with pytest.raises(NotAvailable, match="only a jitted function"):
        donated(lambda x: x + 1, "f32[4]", jit=False)
