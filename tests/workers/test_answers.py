"""Arrays that a job answers with: any that JAX has come back as they were, what is no data is refused."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of

from benchax.workers.answers import describe_array, rebuild_array

DTYPES = [
    "bool",
    "int8",
    "uint16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex64",
    "<U3",
    "S4",
    "<M8[s]",
]


def there_and_back(array: Any) -> np.ndarray:
    description, content = describe_array(array)
    return rebuild_array(description, memoryview(bytearray(content.raw())))


@given(st.sampled_from(DTYPES).flatmap(lambda d: arrays_of.arrays(d, arrays_of.array_shapes(min_dims=0, min_side=0))))
def test_any_array_comes_back(array: np.ndarray) -> None:
    back = there_and_back(array)

    assert (back.dtype, back.shape, back.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert back.flags.writeable


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4"])
def test_what_only_jax_has_comes_back(dtype: str) -> None:
    array = jnp.arange(6, dtype=dtype).reshape(2, 3)

    back = there_and_back(array)

    assert (back.dtype, back.tolist()) == (array.dtype, array.tolist())


def test_order_and_strides_do_not_matter() -> None:
    array = np.arange(24.0).reshape(4, 6).T[::2]

    np.testing.assert_array_equal(there_and_back(array), array)


def test_a_key_becomes_its_data() -> None:
    key = jax.random.key(3)

    np.testing.assert_array_equal(there_and_back(key), jax.random.key_data(key))


@pytest.mark.parametrize("value", [np.array([object()]), np.zeros(2, [("a", "f4")]), object()])
def test_what_is_no_plain_data_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match=r"an array of dtype .* cannot be sent from a worker process"):
        describe_array(value)


def test_bytes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="3 bytes are no array"):
        rebuild_array({"dtype": "<f4", "shape": [1]}, memoryview(bytearray(3)))
