"""Specs become seeded data on the device; what is static stays what it is; donated buffers are renewed."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchax.case import make_case
from benchax.errors import UsageError
from benchax.measuring.inputs import make_inputs, static_arguments, undeclared_static
from benchax.specs import DTYPES

NARROW = sorted(name for name in DTYPES if "64" not in name and "128" not in name)


def inputs_of(*args, seed=0, static=(), **kwargs):
    return make_inputs(make_case(lambda *a, **k: None, args, kwargs, static=static), seed)


@settings(max_examples=40)
@given(st.sampled_from(NARROW), st.lists(st.integers(0, 4), max_size=3))
def test_every_spec_becomes_an_array_of_its_shape_and_dtype(dtype, shape):
    text = f"{dtype}[{','.join(map(str, shape))}]"

    made = inputs_of(text)

    assert made.args[0].shape == tuple(shape)
    assert str(made.args[0].dtype) == DTYPES[dtype]
    assert made.signature == text


def test_data_are_random_and_the_same_for_the_same_seed():
    first, again, other = inputs_of("f32[64]"), inputs_of("f32[64]"), inputs_of("f32[64]", seed=1)

    assert jnp.array_equal(first.args[0], again.args[0])
    assert not jnp.array_equal(first.args[0], other.args[0])
    assert len(np.unique(first.args[0])) > 60


def test_two_inputs_of_one_case_differ():
    made = inputs_of("f32[64]", "f32[64]")

    assert not jnp.array_equal(*made.args)


def test_keys_are_typed_keys():
    made = inputs_of("key", "key[4]")

    assert [jax.random.key_data(k).shape[:-1] for k in made.args] == [(), (4,)]
    assert made.signature == "key, key[4]"


def test_specs_inside_pytrees_and_keyword_arguments_are_made():
    made = inputs_of({"w": "f32[2,3]", "b": ["bf16[3]"]}, x=jax.ShapeDtypeStruct((4,), jnp.int32))

    assert made.signature == "{b: [bf16[3]], w: f32[2,3]}, x=i32[4]"  # JAX sorts the keys
    assert made.args[0]["b"][0].dtype == jnp.bfloat16


def test_static_arguments_stay_as_they_are_even_if_they_look_like_specs():
    made = inputs_of("f32[2]", "f32[2]", static=[1])

    assert made.args[1] == "f32[2]"
    assert made.signature == "f32[2], 'f32[2]'"


def test_numpy_arrays_are_placed_once_and_counted():
    made = inputs_of(np.ones((4, 8), np.float32), 1.5)

    assert isinstance(made.args[0], jax.Array)
    assert made.numpy_bytes == 128
    assert made.args[1] == 1.5


def test_narrowing_to_32_bits_is_noticed():
    made = inputs_of("f64[4]", np.arange(3, dtype=np.int64))

    assert made.narrowed == ("float64 to float32", "int64 to int32")


def test_arrays_on_the_device_are_passed_through_untouched():
    x = jnp.ones(3)

    made = inputs_of(x)

    assert made.args[0] is x
    assert made.numpy_bytes == 0


def test_renewed_buffers_are_equal_and_new():
    made = inputs_of({"a": "f32[16]"}, "key", 3)

    (tree, key, number), kwargs = made.renewed()

    assert tree["a"].unsafe_buffer_pointer() != made.args[0]["a"].unsafe_buffer_pointer()
    assert jnp.array_equal(tree["a"], made.args[0]["a"])
    assert (key == made.args[1], number, kwargs) == (True, 3, {})


def test_a_wrong_spec_is_an_error_that_lists_the_dtypes():
    with pytest.raises(UsageError, match=r"unknown dtype 'f33' in 'f33\[2\]'\nexpected one of: bool, i8"):
        inputs_of("f33[2]")


def test_static_names_and_positions_mean_the_same_argument():
    def fn(x, n, *, mode):
        return x

    by_name = make_case(fn, (1, 2), {"mode": 3}, static=["n", "mode"])
    by_position = make_case(fn, (1,), {"n": 2, "mode": 3}, static=[1])
    negative = make_case(lambda *a: a, (1, 2, 3), static=[-1])

    assert set(static_arguments(by_name, (1, 2), {"mode": 3})) >= {1, "mode"}
    assert "n" in static_arguments(by_position, (1,), {"n": 2, "mode": 3})
    assert static_arguments(negative, (1, 2, 3), {}) == (2,)


@pytest.mark.parametrize(
    ("jitted", "args", "kwargs", "static"),
    [
        (functools.partial(jax.jit, static_argnums=1), (jnp.ones(2), 3), {}, (1,)),
        (functools.partial(jax.jit, static_argnames="n"), (jnp.ones(2), 3), {}, (1,)),
        (functools.partial(jax.jit, static_argnames="n"), (jnp.ones(2),), {"n": 3}, ("n",)),
        (jax.jit, (jnp.ones(2), 3), {}, ()),
    ],
)
def test_static_arguments_of_a_jitted_function_are_found_from_what_jax_publishes(jitted, args, kwargs, static):
    traced = jitted(lambda x, n: x * n).trace(*args, **kwargs)

    assert undeclared_static(traced.args_info, args, kwargs) == static


def test_a_scalar_that_is_dynamic_is_not_taken_for_the_static_one_beside_it():
    fn = jax.jit(lambda x, a, mode: x * a if mode == "fast" else x, static_argnums=2)
    args = (jnp.ones(2), 3.0, "fast")

    assert undeclared_static(fn.trace(*args).args_info, args, {}) == (2,)
