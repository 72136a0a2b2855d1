"""`numerics.compare`: what counts as agreeing with a reference, and what the row says when it does not."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchax.model import Numerics
from benchax.numerics import compare, describe_nonfinite
from benchax.numerics import tolerance_between_programs as tolerance

NARROW = ["bfloat16", "float8_e4m3fn", "float8_e5m2"]
INEXACT = ["float16", "float32", "float64", "complex64", "complex128", *NARROW]
EXACT = ["bool", "int8", "int32", "int64", "uint8", "uint32", "uint64", "int4", "uint4"]


def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def eager(outputs: Any, reference: Any) -> Numerics:
    return compare(outputs, reference, against="eager")


def float64(outputs: Any, reference: Any) -> Numerics:
    return compare(outputs, reference, against="float64")


# Values of every type


@pytest.mark.parametrize("name", INEXACT + EXACT)
def test_equal_arrays_of_any_type_agree(name: str):
    values = np.array([0, 1, 1, 0]).astype(dtype_of(name))

    found = eager(values, values.copy())

    expected = Numerics("eager", True, max_abs=0.0, max_rel=0.0, max_ulp=0.0, tolerance=tolerance(values.dtype))
    assert found == expected


@pytest.mark.parametrize("name", INEXACT)
def test_inexact_leaves_may_differ_by_half_of_their_digits_and_narrow_ones_by_a_few_units(name: str):
    dtype = dtype_of(name)
    reference = np.array([1.0, -2.0]).astype(dtype)
    one_ulp = np.array([1.0, -2.0 - 2 * float(jnp.finfo(dtype).eps)]).astype(dtype)
    far = np.array([1.0, -4.0]).astype(dtype)

    near_enough, too_far = eager(one_ulp, reference), eager(far, reference)

    assert near_enough.agrees
    assert near_enough.max_ulp == 1
    eps = float(jnp.finfo(dtype).eps)
    assert near_enough.tolerance == {"float16": 8 * eps, "bfloat16": 8 * eps}.get(
        name, eps if "float8" in name else math.sqrt(eps)
    )
    assert not too_far.agrees
    assert too_far.max_abs == 2
    assert too_far.max_rel == 1


@pytest.mark.parametrize(("name", "factor"), [("bfloat16", 1.08), ("float16", 1.03), ("float8_e4m3fn", 1.25)])
def test_a_few_percent_do_not_pass_in_narrow_types(name: str, factor: float):
    reference = np.linspace(-1, 1.75, 50).astype(dtype_of(name))
    outputs = (reference.astype(np.float32) * factor).astype(dtype_of(name))

    assert not eager(outputs, reference).agrees


@pytest.mark.parametrize("name", EXACT)
def test_exact_leaves_must_be_equal(name: str):
    a, b = np.array([0, 1]).astype(dtype_of(name)), np.array([0, 0]).astype(dtype_of(name))

    found = eager(a, b)

    assert not found.agrees
    assert (found.max_abs, found.max_ulp, found.tolerance) == (1, 1, 0)
    assert found.why.endswith(f"(largest difference 1; {name} must be equal)")


@pytest.mark.parametrize(("dtype", "largest"), [(np.int64, 2**63 - 1), (np.uint64, 2**64 - 1)])
def test_one_off_is_seen_where_doubles_are_too_coarse(dtype: Any, largest: int):
    found = eager(np.array([largest], dtype), np.array([largest - 1], dtype))

    assert not found.agrees
    assert found.max_abs == 1
    assert f"{largest} where the reference has {largest - 1}" in found.why


def test_the_tolerance_is_relative_to_the_largest_value_of_the_leaf():
    """A small element owes its error to the large ones."""
    reference = jnp.array([1e4, 1e-3], jnp.float32)

    assert eager(reference + jnp.array([0, 1.0]), reference).agrees
    assert not eager(reference + jnp.array([0, 10.0]), reference).agrees


def test_the_sentence_says_where_what_and_how_far_with_enough_digits():
    found = eager({"loss": jnp.float32(1.2e36)}, {"loss": jnp.float32(2.56)})
    close = eager(jnp.array([[1.0, 1.0005]]), jnp.ones((1, 2)))

    assert found.worst == "['loss']"
    assert found.why == (
        "leaf ['loss'] is 1.2e+36 where the reference has 2.56 "
        "(largest difference 1.2e+36, 4.7e+35 of the reference's largest value; allowed 3.5e-04)"
    )
    assert close.why.startswith("the output at [0, 1] is 1.0005 where the reference has 1 (largest difference 5.0e-04")


def test_the_numbers_are_those_of_the_worst_leaf():
    """A bfloat16 leaf may be further off than a float32 one and still be the better of the two."""
    reference = {"half": jnp.ones(2, jnp.bfloat16), "single": jnp.ones(2, jnp.float32), "whole": jnp.arange(2)}
    outputs = {"half": reference["half"] * 1.01, "single": reference["single"] * 1.001, "whole": jnp.arange(2)}

    found = eager(outputs, reference)

    assert found.worst == "['single']"
    assert found.tolerance == tolerance(jnp.float32)
    assert found.max_rel == pytest.approx(1e-3, rel=1e-3)
    assert not found.agrees


def test_complex_numbers_count_as_their_two_parts():
    found = eager(jnp.array([3 + 4j]), jnp.array([3 + 5j]))

    assert (found.max_abs, found.max_rel) == (1, 0.2)
    assert "3+4j where the reference has 3+5j" in found.why


def test_the_worst_element_is_found_in_any_piece_of_a_large_array(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("benchax.numerics._PIECE", 7)
    reference = np.ones((5, 20), np.float32)
    outputs = reference.copy()
    outputs[1, 3], outputs[3, 17], outputs[4, 0] = 1.5, 3.0, 2.0

    found = eager(outputs, reference)

    assert found.max_abs == 2
    assert found.why.startswith("the output at [3, 17] is 3 where the reference has 1")


@pytest.mark.parametrize("name", ["float16", "float32", "float64"])
def test_units_in_the_last_place_are_those_of_numpy(name: str):
    reference = np.array([0, 1e-7, 0.3, 1.0, 1.999, 2.0, 6e4], name)
    above = np.nextafter(reference, np.array(np.inf, name))

    for a, b in zip(above, reference, strict=True):
        assert eager(a, b).max_ulp == 1, b


# What is not finite


@pytest.mark.parametrize(
    ("a", "b"), [(np.nan, 1.0), (1.0, np.nan), (np.inf, 1.0), (1.0, -np.inf), (np.inf, -np.inf), (np.inf, np.nan)]
)
def test_not_finite_on_one_side_only_is_counted(a: float, b: float):
    found = eager(jnp.array([0.0, a, a]), jnp.array([0.0, b, b]))

    assert (found.agrees, found.nonfinite, found.max_abs) == (False, 2, None)
    assert found.why == (
        f"the output at [1] is {a:g} where the reference has {b:g} (2 of 3 values differ in being NaN or infinite)"
    )


def test_not_finite_agrees_with_the_same_in_the_same_place_and_is_counted_over_all_leaves():
    values = jnp.array([jnp.nan, jnp.inf, -jnp.inf, 1.0])
    mixed = np.array([complex(np.inf, np.nan)], np.complex64)

    assert eager(values, values.copy()).agrees
    assert eager((jnp.array([jnp.nan]), jnp.array([jnp.inf])), (jnp.zeros(1), jnp.zeros(1))).nonfinite == 2
    assert eager(mixed, mixed.copy()).agrees
    assert eager(mixed, np.array([complex(-np.inf, 1)], np.complex64)).nonfinite == 1


def test_a_maximum_that_overflows_is_no_number():
    found = eager(np.array([1e308]), np.array([-1e308]))

    assert (found.agrees, found.max_abs) == (False, None)


# Zero and what is flushed to it


def test_a_reference_of_zeros_has_no_relative_difference():
    found = eager(jnp.array([0.0, 1e-9]), jnp.zeros(2))

    assert not found.agrees
    assert found.max_rel is None
    assert "the reference is zero throughout" in found.why


def test_what_underflows_in_the_compiled_type_agrees():
    """exp(-200) is 0 in float32."""
    assert float64(jnp.exp(jnp.float32(-200)), np.exp(-200.0)).agrees
    assert not float64(jnp.exp(jnp.float32(-80)) * 2, np.exp(-80.0)).agrees


def test_leaves_without_a_value_agree():
    """Empty ones, gradients of integers, and none at all."""
    nothing = np.zeros(3, jax.dtypes.float0)

    assert eager(jnp.zeros((0, 3)), jnp.zeros((0, 3))).agrees
    assert eager(nothing, nothing.copy()).agrees
    assert eager((), ()) == Numerics("eager", True)


# Structure, shapes, types


UNLIKE = (
    ({"a": 1.0}, {"a": 1.0, "b": 2.0}), ([1.0, 2.0], [1.0]), ([1.0], (1.0,)), (1.0, [1.0]), ({}, ()),
    ([jnp.ones((2, 3))], [jnp.ones((3, 2))]), ([jnp.ones(2, jnp.bfloat16)], [jnp.ones(2)]), ([jnp.int32(1)], [1.0]),
    ([None], [jnp.ones(3)]), (["text"], [jnp.ones(3)]), ([jax.random.key(0)], [jax.random.key(0, impl="rbg")]),
)  # fmt: skip


def test_trees_and_leaves_that_are_built_differently_disagree_without_a_number(snapshot: Any):
    found = [eager(outputs, reference) for outputs, reference in UNLIKE]

    assert found == [Numerics("eager", False, worst=each.worst, why=each.why) for each in found]
    assert [(each.worst, each.why) for each in found] == snapshot


def test_a_double_precision_reference_may_have_any_width_but_not_another_kind():
    narrow = float64(jnp.full(2, 1.01, jnp.bfloat16), np.ones(2))
    assert (narrow.agrees, narrow.tolerance) == (True, tolerance(jnp.bfloat16))
    assert float64(jnp.arange(2), np.arange(2)).agrees
    assert not float64(jnp.arange(2), np.arange(2.0)).agrees
    assert not float64(jnp.ones(2), np.ones(2, complex)).agrees


def test_weak_types_and_pythons_64_bits_make_no_difference():
    assert eager(jax.jit(lambda: 3.0)(), 3.0).agrees
    assert eager(jax.jit(lambda x: x * 1)(2), np.int64(2)).agrees
    assert eager(jax.jit(lambda x: x)(True), True).agrees
    assert eager(jax.jit(lambda x: x)(1j), 1j).agrees


# Leaves that are no arrays of numbers


def test_typed_keys_are_compared_by_their_data():
    assert eager(jax.random.split(jax.random.key(0), 3), jax.random.split(jax.random.key(0), 3)).agrees

    found = eager(jax.random.key(1), jax.random.key(0))

    assert not found.agrees
    assert "uint32 must be equal" in found.why


@pytest.mark.parametrize("leaf", [None, "text", len, np.array(["a", "b"]), 2**70, b"bytes"])
def test_other_leaves_agree_when_they_are_equal(leaf: Any):
    assert eager({"a": leaf}, {"a": leaf}) == Numerics("eager", True)


@pytest.mark.parametrize(("a", "b"), [("x", "y"), (2**70, 2**70 + 1), (len, max)])
def test_other_leaves_disagree_when_they_are_not(a: Any, b: Any):
    found = eager(a, b)

    assert not found.agrees
    assert found.why == f"the output is {a!r} where the reference has {b!r}"


def test_what_refuses_to_be_compared_does_not_agree():
    class Stubborn:
        def __eq__(self, other: object) -> bool:
            raise RuntimeError("no")

        __hash__ = None  # type: ignore[assignment]

    assert not eager(Stubborn(), Stubborn()).agrees


def test_trees_whose_static_data_refuses_to_be_compared_are_compared_by_their_paths():
    @jax.tree_util.register_pytree_node_class
    class Node:
        def tree_flatten(self):
            return (jnp.ones(2),), np.arange(3)

        @classmethod
        def tree_unflatten(cls, aux: Any, children: Any) -> Any:
            return cls()

    assert eager(Node(), Node()).agrees


@pytest.mark.parametrize(
    ("tree", "said"),
    [
        ({"a": np.float32([1, np.nan, np.inf]), "b": [np.float64([-np.inf]), 3, True]}, "1 NaN and 2 infinite of 4"),
        (np.complex64([1 + 1j, complex(0, np.inf), complex(np.nan, np.inf)]), "1 NaN and 1 infinite of 3"),
        (jnp.full(3, jnp.nan, jnp.bfloat16), "3 NaN of 3"),
        ((np.ones(3), np.arange(4), None, np.float32([]), jax.random.key(0)), ""),
    ],
)
def test_values_that_are_not_finite_are_counted(tree: Any, said: str):
    assert describe_nonfinite(tree) == said


# Properties

numbers = st.floats(allow_nan=True, allow_infinity=True, width=32)
trees = st.recursive(
    st.lists(numbers, max_size=5).map(lambda x: np.array(x, np.float32)) | st.integers(-9, 9) | st.none() | numbers,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)


@given(trees)
def test_anything_agrees_with_itself(tree: Any):
    found = eager(tree, jax.tree.map(lambda x: x, tree))

    assert found.agrees
    assert found.why == found.worst == ""


@given(
    values=st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=8),
    where=st.integers(0, 7),
    factor=st.floats(2, 1e3),
)
@settings(deadline=None)
def test_a_change_well_above_the_tolerance_never_agrees(values: list[float], where: int, factor: float):
    reference = np.array(values, np.float32)
    outputs = reference.copy()
    step = factor * tolerance(np.float32) * max(float(np.abs(reference).max()), 1e-20)
    outputs[where % len(values)] += np.float32(step)

    found = eager(outputs, reference)

    assert not found.agrees
    assert found.why
