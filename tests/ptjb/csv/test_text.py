"""Any text as one word, and any parameters as one text."""

from __future__ import annotations

import enum
import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchax.model import Opaque
from pytest_jax_bench.csv.lines import decode_parameters, encode_parameters, one_line, unword, word

ANY_TEXT = st.text(st.characters())  # lone surrogates as well
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)
PARAMS = st.dictionaries(st.from_regex(r"[a-zé_][a-z_0-9]{0,3}", fullmatch=True), VALUES, max_size=4)


def typed(value: object) -> object:
    """Told apart where == does not: 1, 1.0 and True; 0.0 and -0.0."""
    if isinstance(value, tuple):
        return tuple(map(typed, value))
    return type(value), math.copysign(1, value) if isinstance(value, float) else None, value


def all_typed(params: dict[str, object]) -> list[tuple[str, object]]:
    return [(name, typed(value)) for name, value in params.items()]


@given(ANY_TEXT)
def test_a_text_is_one_word_and_comes_back(text: str) -> None:
    made = word(text)

    assert made.split() == [made]
    assert made.isprintable()
    assert "#" not in made
    assert unword(made) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("base", "base"),
        ("two words", "two%20words"),
        ("a,b/c-d=ü", "a,b/c-d=ü"),
        ("50%", "50%25"),
        ("line\nbreak", "line%0Abreak"),
        ("#1", "%231"),
        ("", '""'),
        ('""', '%22"'),
        ("x" * 10_000, "x" * 10_000),
    ],
)
def test_ordinary_texts_stay_readable(text: str, expected: str) -> None:
    assert word(text) == expected


def test_a_word_that_was_edited_by_hand_is_left_as_it_is() -> None:
    assert unword("50%FF") == "50%FF"


@given(ANY_TEXT)
def test_a_comment_is_one_line(text: str) -> None:
    assert one_line(text).splitlines() in ([], [one_line(text)])
    assert unword(one_line(text)) in (text, "")


# ---- parameters -------------------------------------------------------------------------------------------------


@given(PARAMS)
def test_parameters_come_back_with_their_types(params: dict[str, object]) -> None:
    assert all_typed(decode_parameters(encode_parameters(params))) == all_typed(params)


@given(PARAMS, PARAMS)
def test_distinct_parameters_have_distinct_texts(one: dict[str, object], other: dict[str, object]) -> None:
    assert (encode_parameters(one) == encode_parameters(other)) == (all_typed(one) == all_typed(other))


def a_function() -> None: ...


class Mode(enum.Enum):
    FAST = 1


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        ({}, "None"),
        ({"n": 128}, "n-128"),
        ({"n": -128, "x": -0.5, "name": "alpha"}, "n--128,x--0.5,name-alpha"),
        ({"p": True}, "p-True"),
        ({"p": "True"}, 'p-"True"'),
        ({"p": None}, "p-None"),
        ({"p": "None"}, 'p-"None"'),
        ({"p": "none"}, 'p-"none"'),
        ({"p": "128"}, 'p-"128"'),
        ({"p": "a,b"}, 'p-"a,b"'),
        ({"p": ""}, 'p-""'),
        ({"p": "a b#c-d"}, "p-a b#c-d"),
        ({"shape": (2, 3)}, "shape-[2,3]"),
        ({"dtype": jnp.float32}, "dtype-@_ScalarMeta:jax.numpy.float32"),
        ({"f": a_function}, f"f-@function:{__name__}.a_function"),
        ({"mode": Mode.FAST}, "mode-@Mode:<Mode.FAST: 1>"),
        ({"x": np.int64(5)}, "x-@int64:int64(5)"),
        ({"p": "@function:f"}, 'p-"@function:f"'),
        ({"x": float("nan")}, 'x-{"$float":"nan"}'),
    ],
)
def test_what_the_text_looks_like(params: dict[str, object], expected: str) -> None:
    assert encode_parameters(params) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("None", {}),
        ("", {}),
        ("n-128", {"n": 128}),
        ("p-True,q-none", {"p": True, "q": None}),
        ("x-1e-06,y-.5,z--3", {"x": 1e-6, "y": 0.5, "z": -3}),
        ("p-(1, 2)", {"p": "(1, 2)"}),
        ("p-(1, -2),n-3", {"p": "(1, -2)", "n": 3}),
        ("p-[1, 2]", {"p": (1, 2)}),
        ("p-{}", {"p": "{}"}),
        ("p-{'a': 1}", {"p": "{'a': 1}"}),
        ("p-" + "[" * 100_000, {"p": "[" * 100_000}),
        ("p-[broken,n-3", {"p": "[broken", "n": 3}),
        ("p-<class 'jax.numpy.float32'>", {"p": "<class 'jax.numpy.float32'>"}),
        ("f-a-b-c", {"f": "a-b-c"}),
    ],
)
def test_what_0_5_0_wrote_is_read_as_it_read_it_or_better(text: str, expected: dict[str, object]) -> None:
    assert decode_parameters(text) == expected


def test_arrays_are_told_apart_by_their_content() -> None:
    one, other = (encode_parameters({"x": np.array([1.0, last])}) for last in (2.0, 3.0))

    assert one != other
    assert isinstance(decode_parameters(one)["x"], Opaque)


@given(st.text('np-,"[]{}@:0.\\ \n', max_size=12))
def test_any_text_in_the_column_can_be_read(text: str) -> None:
    assert isinstance(decode_parameters(text), dict)
