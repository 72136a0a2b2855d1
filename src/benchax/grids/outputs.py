"""The outputs of a grid: on their way from the worker, compared with those of a reference, and changed on request.

A worker's answer is never unpickled, so the tree is built again from its description. Dicts, lists, tuples and None
come back as they were. The leaves of other containers (named tuples, a user's own classes) come back in a dict by path.
A typed key of `jax.random` comes back as its key data.

Outputs agree with the reference's if half of the digits of the coarser type agree (`numerics.py`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.errors import UsageError
from benchax.model import Absent, Numerics
from benchax.numerics import compare, tolerance

LONGEST_TEXT = 200


def take_apart(tree: Any) -> Any:
    """Describes a tree as JSON whose leaves are arrays, which stay where they are: `on_host` copies them."""
    if tree is None:
        return None
    # Exactly these types: a subclass, or a key of another type, would come back as something else.
    if type(tree) is dict and all(type(key) in (str, int, bool) for key in tree):
        return {"dict": [[key, take_apart(value)] for key, value in tree.items()]}
    if type(tree) in (list, tuple):
        return {type(tree).__name__: [take_apart(value) for value in tree]}
    if jax.tree_util.all_leaves([tree]):
        return _leaf(tree)
    flat, _ = jax.tree_util.tree_flatten_with_path(tree)
    return {"dict": [[jax.tree_util.keystr(path), _leaf(leaf)] for path, leaf in flat]}


def _leaf(value: Any) -> Any:
    if isinstance(value, jax.Array) and jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        value = jax.random.key_data(value)
    if isinstance(value, jax.Array | np.ndarray):
        return {"leaf": value}
    if isinstance(value, np.generic | bool | int | float | complex):
        return {"leaf": np.asarray(value)}
    return {"text": repr(value)[:LONGEST_TEXT]}  # jit returns none, but wrappers and eager calls may


def on_host(description: Any) -> Any:
    """The same with arrays of NumPy."""
    return jax.tree.map(lambda leaf: np.asarray(leaf) if isinstance(leaf, jax.Array) else leaf, description)


def put_together(description: Any) -> Any:
    """Inverse of `take_apart`, as far as the description goes."""
    match description:
        case {"leaf": array}:
            # Ray gives read-only arrays over its shared memory.
            return array if array.flags.writeable else array.copy()
        case {"text": str(text)}:
            return text
        case {"dict": list(items)}:
            return {key: put_together(item) for key, item in items}
        case {"list": list(items)}:
            return [put_together(item) for item in items]
        case {"tuple": list(items)}:
            return tuple(put_together(item) for item in items)
        case _:
            return None


def shape_text(description: Any) -> str:
    """The structure and the shapes, without types: [4], ([4], {loss: []}). Equal texts mean equal shapes."""
    match description:
        case {"leaf": array}:
            return f"[{','.join(map(str, array.shape))}]"
        case {"dict": list(items)}:
            return "{" + ", ".join(f"{key}: {shape_text(item)}" for key, item in items) + "}"
        case {"list": list(items)}:
            return "list(" + ", ".join(map(shape_text, items)) + ")"
        case {"tuple": list(items)}:
            return "(" + ", ".join(map(shape_text, items)) + ")"
        case _:
            return "None" if description is None else json.dumps(description)


def size_bytes(tree: Any) -> int:
    """Adds up the bytes of all arrays; nothing is copied."""
    return sum(getattr(leaf, "nbytes", 0) for leaf in jax.tree.leaves(tree))


# ---- agreement --------------------------------------------------------------------------------------------------


def agreement(outputs: Any, reference: Any) -> Numerics:
    """One trial of a cell against the same trial of the reference, both as trees of NumPy arrays. A difference is a
    result, not an error."""
    # The reference may be the coarser one; the bound is always that of the type of the first argument.
    is_coarser = _tolerance(reference) > _tolerance(outputs)
    pair = (reference, outputs) if is_coarser else (outputs, reference)
    # Not for "float64", because its types of one kind can differ in width: grids compare f32 with bf16.
    return replace(compare(*pair, against="float64"), reference="baseline")


def _tolerance(tree: Any) -> float:
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(tree) if isinstance(leaf, np.ndarray)]
    return max((tolerance(dtype) for dtype in dtypes if jnp.issubdtype(dtype, np.inexact)), default=0.0)


# ---- on request, after everything was measured ------------------------------------------------------------------


def checked_clip(clip: Any) -> tuple[float, float] | None:
    """Raises `UsageError` for what is not a pair of numbers, the smaller one first."""
    if clip is None:
        return None
    try:
        low, high = (float(end) for end in clip)
    except (TypeError, ValueError):
        low, high = 1.0, 0.0
    if not low <= high:
        raise UsageError(f"clip cannot be {clip!r}", "a pair (low, high) of numbers, such as (-1, 1)")
    return low, high


def clean_arrays(tree: Any, clip: tuple[float, float] | None, nan_to_num: bool) -> Any:
    """Each array of the tree clipped, then with 0 for NaN and the largest finite numbers for infinities, as NumPy does;
    the type stays."""
    return jax.tree.map(lambda leaf: _clean_leaf(leaf, clip, nan_to_num), tree)


def _clean_leaf(leaf: Any, clip: tuple[float, float] | None, nan_to_num: bool) -> Any:
    if not isinstance(leaf, np.ndarray):
        return leaf
    # np.clip and np.nan_to_num do not accept bfloat16 and similar types.
    found = leaf.astype(np.float32) if leaf.dtype.kind == "V" else leaf
    if clip is not None:
        found = np.clip(found, *clip)
    return (np.nan_to_num(found) if nan_to_num else found).astype(leaf.dtype)


def stack_columns(
    columns: Mapping[str, Any], *, clip: tuple[float, float] | None, nan_to_num: bool, ones: bool, fill: float | None
) -> np.ma.MaskedArray[Any, Any]:
    """Arrays of one length side by side; see `GridResult.stack_columns`."""
    arrays = {name: column for name, column in columns.items() if not isinstance(column, Absent)}
    for name, column in arrays.items():
        if not isinstance(column, np.ndarray) or column.ndim != 1:
            what = f"an array of shape {column.shape}" if isinstance(column, np.ndarray) else type(column).__name__
            raise UsageError(f"the output of {name!r} is {what}", "arrays of one dimension, to be stacked")
    lengths = {len(column) for column in arrays.values()}
    if len(lengths) != 1:
        found = f"outputs of lengths {sorted(lengths)}" if lengths else "no outputs"
        raise UsageError(f"{found} of {', '.join(columns)}", "outputs of one length, to be stacked")
    shape = (lengths.pop(), len(columns) + ones)
    values, is_absent = np.ones(shape), np.zeros(shape, dtype=bool)
    for j, name in enumerate(columns):
        if name in arrays:
            values[:, j] = clean_arrays(arrays[name], clip, nan_to_num)
        else:
            values[:, j], is_absent[:, j] = fill or 0.0, fill is None
    return np.ma.MaskedArray(values, mask=is_absent)
