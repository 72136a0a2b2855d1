"""What sweeping variants are told."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.case import make_case
from benchax.discovery import resolve_target
from benchax.errors import UsageError
from benchax.experiments.parsing import CommonAxis, arguments, axes, halves, named_objects, sizes, values
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


def read_or_refused(read: Callable[[str, str], tuple[Any, ...]], text: str) -> tuple[Any, ...] | str:
    """The values, or what the refusal says."""
    try:
        return read("vmap", text)
    except UsageError as error:
        return str(error)


@given(st.text(max_size=40))
def test_whatever_is_typed_is_read_or_refused(text: str) -> None:
    case = make_case(lambda x: x, (jnp.ones((2, 2)),))
    inputs = make_inputs(case, 0)

    for read in (values, sizes, lambda name, t: axes(name, halves(name, t)[0], case, inputs)):
        assert read_or_refused(read, text)  # neither nothing nor an error without words


def test_arguments_go_by_name_or_position_and_static_ones_have_no_axes() -> None:
    case = make_case(lambda x, n, *, w: x, (jnp.ones((2, 3)), 4), {"w": jnp.ones(3)}, static=("n",))
    inputs = make_inputs(case, 0)

    assert arguments(case, inputs) == {"x": 0, "w": "w"}
    assert axes("shapes", "x.1+w", case, inputs) == (CommonAxis(0, 1), CommonAxis("w", 0))
    assert axes("shapes", "0", case, inputs) == (CommonAxis(0, 0),)
    with pytest.raises(UsageError, match="'n'"):
        axes("shapes", "n", case, inputs)
    with pytest.raises(UsageError, match="has no axis 2"):
        axes("shapes", "x.2", case, inputs)


def test_what_is_named_is_that_of_the_file_of_the_function(project: Path) -> None:
    """No second import, which would make other classes; another file is imported once."""
    (project / "code.py").write_text("class Own: pass\ndef f(x): return x\n")
    (project / "other.py").write_text("class Other: pass\n")
    f: Any = resolve_target("code.py:f")

    own, other, again = named_objects("loop", ["code.py:Own", "other.py:Other", "./other.py:Other"], make_case(f))

    assert own is f.__globals__["Own"]
    assert other is again


def test_a_module_is_named_as_well() -> None:
    assert named_objects("loop", ["jax.numpy:sin"], make_case(abs)) == [jnp.sin]


@pytest.mark.parametrize("name", ["", ":", "f", ":f", "code.py:", "code.py"])
def test_what_is_no_name_is_quoted(name: str) -> None:
    with pytest.raises(UsageError, match="MODULE:NAME") as caught:
        named_objects("loop", [name], make_case(abs))

    assert f"loop is given the name {name!r}" in caught.value.problem
