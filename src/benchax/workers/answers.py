"""The return value of a task on its way back: JSON by the task's annotation (`json_values.py`), plus arrays and bytes.

No part of an answer is unpickled: it comes from a process in which the user's code ran. JSON and plain bytes can be
wrong, but do no harm.
"""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np

from benchax import json_values
from benchax.workers.channel import Bytes

_ARRAY, _BYTES, _SECTION = "$array", "$bytes", "section"

json_values.leave_as_it_is(np.ndarray)
json_values.leave_as_it_is(bytes)


def pack(value: Any, hint: Any) -> list[Bytes]:
    """Sections of a message: the text, then the arrays and bytes that it refers to.

    Raises:
        TypeError: `value` is not what `hint` says, or holds what cannot travel.
        MemoryError: there is no room for a copy of an array.
    """
    beside: list[Bytes] = []

    def put_beside(leaf: Any) -> dict[str, Any]:
        """json.dumps asks for everything that JSON has no word for."""
        if isinstance(leaf, bytes):
            beside.append(leaf)
            return {_BYTES: len(beside)}
        if not isinstance(leaf, np.ndarray | jax.Array):
            raise TypeError(f"Object of type {type(leaf).__name__} is not JSON serializable")
        description, content = describe_array(leaf)
        beside.append(content)
        return {_ARRAY: description, _SECTION: len(beside)}

    text = json.dumps(json_values.encode_value(value, hint), default=put_beside)
    return [text.encode("ascii"), *beside]


def unpack(sections: Sequence[memoryview], hint: Any) -> Any:
    """Inverse of `pack`; arrays are writable, over the memory of their sections.

    Raises:
        ValueError, KeyError, IndexError, TypeError, FormatError: what came is no answer of this kind.
    """

    def put_back(found: dict[str, Any]) -> Any:
        if _BYTES in found:
            return bytes(sections[found[_BYTES]])
        if _ARRAY in found:
            return rebuild_array(found[_ARRAY], sections[found[_SECTION]])
        return found

    return json_values.decode_value(json.loads(bytes(sections[0]), object_hook=put_back), hint)


def describe_array(array: Any) -> tuple[dict[str, Any], pickle.PickleBuffer]:
    """Returns the input of `rebuild_array`. A typed PRNG key becomes its data (uint32).

    Raises:
        TypeError: its elements are not numbers, truth values or texts of fixed length.
    """
    if isinstance(array, jax.Array) and jax.dtypes.issubdtype(array.dtype, jax.dtypes.prng_key):
        array = jax.random.key_data(array)
    plain = np.asarray(array, order="C")
    name = _dtype_name(plain.dtype)
    if _dtype(name) != plain.dtype:
        raise TypeError(f"an array of dtype {plain.dtype} cannot be sent from a worker process")
    return {"dtype": name, "shape": plain.shape}, pickle.PickleBuffer(plain.reshape(-1).view(np.uint8).data)


def rebuild_array(description: Mapping[str, Any], content: memoryview) -> np.ndarray:
    """The array, writable, over the memory of `content`. Raises ValueError where these do not belong together."""
    dtype, shape = _dtype(description["dtype"]), tuple(description["shape"])
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
