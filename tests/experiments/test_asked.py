"""What sweeping variants are told."""

from __future__ import annotations

import contextlib
from typing import Any

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.case import make_case
from benchax.errors import UsageError
from benchax.experiments.asked import Axis, arguments, axes, halves, sizes, values
from benchax.measuring.inputs import make_inputs


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("n=1,2", ("n", "1,2")),
        ("1..8", ("", "1..8")),
        ("x.0+w.1", ("x.0+w.1", None)),
        ({"n": [1, 2]}, ("n", [1, 2])),
        ([1, 2], ("", [1, 2])),
    ],
)
def test_arguments_stand_before_the_equals_sign_and_values_behind(given: Any, expected: tuple[str, Any]) -> None:
    assert halves("static", given) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1,2", (1, 2)), ("'a',None", ("a", None)), ("(1, 2),3", ((1, 2), 3)), ("same,valid", ("same", "valid"))],
)
def test_values_are_read_as_python_and_words_as_texts(text: str, expected: tuple[Any, ...]) -> None:
    assert values("static", text) == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("130,100,100", (100, 130)), ("1..8", (1, 2, 4, 8)), ("3..13,5", (3, 5, 6, 12))]
)
def test_sizes_are_sorted_and_dots_double(text: str, expected: tuple[int, ...]) -> None:
    assert sizes("vmap", text) == expected


@pytest.mark.parametrize("text", ["", "0", "-1", "8..1", "a", "1.5", "9" * 40, "1..x", None, 3.5])
def test_sizes_that_are_none_are_quoted(text: Any) -> None:
    with pytest.raises(UsageError) as caught:
        sizes("vmap", text)

    assert repr(text) in str(caught.value)


@given(st.text(max_size=40))
def test_whatever_is_typed_is_read_or_refused(text: str) -> None:
    case = make_case(lambda x: x, (jnp.ones((2, 2)),))
    inputs = make_inputs(case, 0)

    for read in (values, sizes, lambda name, t: axes(name, halves(name, t)[0], case, inputs)):
        with contextlib.suppress(UsageError):
            read("vmap", text)


def test_arguments_go_by_name_or_position_and_static_ones_have_no_axes() -> None:
    case = make_case(lambda x, n, *, w: x, (jnp.ones((2, 3)), 4), {"w": jnp.ones(3)}, static=("n",))
    inputs = make_inputs(case, 0)

    assert arguments(case, inputs) == {"x": 0, "w": "w"}
    assert axes("shapes", "x.1+w", case, inputs) == (Axis(0, 1), Axis("w", 0))
    assert axes("shapes", "0", case, inputs) == (Axis(0, 0),)
    with pytest.raises(UsageError, match="'n'"):
        axes("shapes", "n", case, inputs)
    with pytest.raises(UsageError, match="has no axis 2"):
        axes("shapes", "x.2", case, inputs)
