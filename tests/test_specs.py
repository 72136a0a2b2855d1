"""Inputs in short, `f32[1024,8]`: text to shape and dtype and back, and plain words about slips."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from refusals import refusal

from benchax.errors import UsageError
from benchax.specs import DTYPES, ArraySpec, MeshSpec, is_spec, long_dtype, parse_spec, read_mesh, short_dtype

SHAPES = st.lists(st.integers(0, 2**40), max_size=5).map(tuple)
AXES = st.lists(st.sampled_from(["data", "model", "_x1", "größe"]), max_size=2).map(tuple)


@st.composite
def specs(draw: st.DrawFn) -> ArraySpec:
    shape = draw(SHAPES)
    axes = tuple(draw(AXES) for _ in shape)
    return ArraySpec(draw(st.sampled_from([*DTYPES.values(), "key"])), shape, axes if any(axes) else ())


SPECS = specs()
# Texts that are nearly specs, beside any text at all.
NEARLY = st.text(st.sampled_from("bcfiukey0123456789_[],- .x"), max_size=16)
LOOKS_LIKE_ONE = st.from_regex(r"(f32|bf16|f33|key)\[[-0-9_., ]{0,8}\]?", fullmatch=True)


def attempt(text: str) -> ArraySpec | UsageError:
    try:
        return parse_spec(text)
    except UsageError as error:
        return error


@pytest.mark.parametrize(
    ("text", "dtype", "shape"),
    [
        ("f32[1024,8]", "float32", (1024, 8)), ("bf16[8]", "bfloat16", (8,)), ("f32[]", "float32", ()),
        ("i32[0]", "int32", (0,)), ("u8[3,0,2]", "uint8", (3, 0, 2)), ("bool[2]", "bool", (2,)),
        ("c64[2]", "complex64", (2,)), ("f8_e4m3fn[4]", "float8_e4m3fn", (4,)), ("f8_e5m2[4]", "float8_e5m2", (4,)),
        ("float32[3]", "float32", (3,)), ("bfloat16[3]", "bfloat16", (3,)), ("key", "key", ()), ("key[]", "key", ()),
        ("key[4]", "key", (4,)), ("key[2,3]", "key", (2, 3)), ("f32[1_000_000]", "float32", (1_000_000,)),
        (" f32 [ 8, 4 ] ", "float32", (8, 4)), (" key ", "key", ()), ("f32[007]", "float32", (7,)),
    ],
)  # fmt: skip
def test_a_spec_is_a_dtype_and_a_shape(text: str, dtype: str, shape: tuple[int, ...]) -> None:
    assert parse_spec(text) == ArraySpec(dtype, shape)


@given(SPECS)
def test_a_spec_survives_being_written_and_read(spec: ArraySpec) -> None:
    assert parse_spec(str(spec)) == spec


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        (ArraySpec("float32", (1024, 8)), "f32[1024,8]"),
        (ArraySpec("uint8", ()), "u8[]"),
        (ArraySpec("key", ()), "key"),
        (ArraySpec("key", (4,)), "key[4]"),
        (ArraySpec("int4", (2,)), "int4[2]"),
    ],
)
def test_a_spec_is_written_in_short(spec: ArraySpec, text: str) -> None:
    assert str(spec) == text


@given(st.text() | NEARLY | LOOKS_LIKE_ONE)
@example("f32[8_]")
@example("f32[1__0]")
@example("f32[" + "9" * 5000 + "]")  # more digits than int() reads
@example("f32[²]")
def test_any_text_is_a_spec_or_a_usage_error_that_quotes_it(text: str) -> None:
    found = attempt(text)

    assert repr(text) in found.problem if isinstance(found, UsageError) else parse_spec(str(found)) == found


@given(NEARLY | LOOKS_LIKE_ONE)
@example(" key ")
def test_whatever_can_be_read_is_meant_as_a_spec(text: str) -> None:
    found = attempt(text)

    assert is_spec(text) or isinstance(found, UsageError)


BAD_SPECS = (
    "", "f32", "f32[8", "f32 8]", "f32[8][4]", "[8]", "8", "f32(8)", "32f[8]", "keys", "f32[[8]]",
    "f33[8]", "F32[8]", "float[8]", "keys[4]",
    "f32[-1]", "f32[+1]", "f32[2.5]", "f32[1e3]", "f32[8,]", "f32[,8]", "f32[8,n]", "f32[8_]", "f32[_8]",
    "f32[1__0]", "key[-1]", "f32[{n}]", "f32[8@,2]", "f32[8@4,2]", "f32[8@a-b,2]",
)  # fmt: skip


def test_a_spec_that_is_none_names_what_is_wrong_in_it(snapshot: Any) -> None:
    assert {text: refusal(parse_spec, text) for text in BAD_SPECS} == snapshot
    assert refusal(long_dtype, "half") == refusal(parse_spec, "half[8]").replace(" in 'half[8]'", "")


@pytest.mark.parametrize(
    "text", ["f32[8]", "f32[]", "key", "key[4]", " f32[ 8 ]", "f33[8]", "f32[x]", "F32[8]", "float[-1]"]
)
def test_what_is_meant_as_a_spec_is_seen_even_if_it_is_wrong(text: str) -> None:
    assert is_spec(text)


@pytest.mark.parametrize(
    "text", ["", "3", "axis", "'f32[8]'", "(1, 2)", "[1, 2]", "keys", "f32", "ij,jk->ik", "{'a': [1]}"]
)
def test_what_is_something_else_is_no_spec(text: str) -> None:
    assert not is_spec(text)


@given(st.sampled_from(sorted(DTYPES)))
def test_short_and_long_names_of_dtypes_are_pairs(short: str) -> None:
    assert short_dtype(long_dtype(short)) == short


def test_every_dtype_is_one_that_jax_knows() -> None:
    import jax.numpy as jnp

    found = [jnp.dtype(name).name for name in DTYPES.values()]

    assert found == list(DTYPES.values())


@pytest.mark.parametrize(
    ("text", "shape", "axes"),
    [
        ("f32[8@data,4]", (8, 4), (("data",), ())),
        ("f32[8@data+model]", (8,), (("data", "model"),)),
        ("f32[8@(data, model), 4]", (8, 4), (("data", "model"), ())),
    ],
)
def test_axes_of_a_mesh_stand_behind_a_dimension(
    text: str, shape: tuple[int, ...], axes: tuple[tuple[str, ...], ...]
) -> None:
    assert parse_spec(text) == ArraySpec("float32", shape, axes)


MESHES = st.dictionaries(st.sampled_from(["data", "model", "x"]), st.integers(1, 99), min_size=1)


@given(MESHES)
def test_a_mesh_survives_being_written_and_read(axes: dict[str, int]) -> None:
    mesh = read_mesh(axes)

    assert read_mesh(str(mesh)) == mesh == MeshSpec(tuple(axes.items()))


def test_what_is_no_mesh_is_refused_in_plain_words(snapshot: Any) -> None:
    meshes = ("", "4", "data=0", {"data": -1}, "a=2,a=2", 4)

    assert {repr(mesh): refusal(read_mesh, mesh) for mesh in meshes} == snapshot
