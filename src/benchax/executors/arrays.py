"""Arrays that a job answers with: described in JSON, their bytes beside it. Nothing of an answer is unpickled.

An answer comes out of a process in which the user's code ran; JSON and plain bytes can be wrong, but do no harm.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np


def described(array: Any) -> tuple[dict[str, Any], pickle.PickleBuffer]:
    """What `rebuilt` needs. A typed PRNG key becomes its data (uint32).

    Raises:
        TypeError: what it holds is not a number, a truth value or text of fixed length.
    """
    if isinstance(array, jax.Array) and jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    plain = np.asarray(array, order="C")
    name = _dtype_name(plain.dtype)
    if _dtype(name) != plain.dtype:
        raise TypeError(f"an array of dtype {plain.dtype} cannot be sent from a worker process")
    return {"dtype": name, "shape": plain.shape}, pickle.PickleBuffer(plain.reshape(-1).view(np.uint8).data)


def rebuilt(descriptions: Sequence[dict[str, Any]], contents: Sequence[memoryview]) -> tuple[np.ndarray, ...]:
    """The arrays, writable, over the memory of `contents`. Raises ValueError where these do not belong together."""
    return tuple(
        _rebuilt(_dtype(d["dtype"]), tuple(d["shape"]), content)
        for d, content in zip(descriptions, contents, strict=True)
    )


def _rebuilt(dtype: np.dtype | None, shape: tuple[int, ...], content: memoryview) -> np.ndarray:
    if dtype is None or dtype.itemsize * math.prod(shape) != content.nbytes:
        raise ValueError(f"{content.nbytes} bytes are no array of dtype {dtype} and shape {shape}")
    return np.frombuffer(content, np.uint8).view(dtype).reshape(shape) if content.nbytes else np.empty(shape, dtype)


def _dtype_name(dtype: np.dtype) -> str:
    # bfloat16 and its kin call themselves "<V2", which is what their bytes are and not what they mean.
    return dtype.name if dtype.kind == "V" else dtype.str


def _dtype(name: str) -> np.dtype | None:
    try:
        dtype = np.dtype(name)
    except TypeError:
        return None
    return None if dtype.hasobject or dtype.names else dtype
