"""Changes outputs on request, after everything was measured: clipping, numbers for NaN, stacking."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from benchax.errors import UsageError
from benchax.model import Absent


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
    # bfloat16 and its kin are no numbers to np.clip and np.nan_to_num.
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
            raise UsageError(f"the output of {name!r} is {what}", "arrays of one dimension, to stand side by side")
    lengths = {len(column) for column in arrays.values()}
    if len(lengths) != 1:
        found = f"outputs of lengths {sorted(lengths)}" if lengths else "no outputs"
        raise UsageError(f"{found} of {', '.join(columns)}", "outputs of one length, to stand side by side")
    shape = (lengths.pop(), len(columns) + ones)
    values, is_absent = np.ones(shape), np.zeros(shape, dtype=bool)
    for j, name in enumerate(columns):
        if name in arrays:
            values[:, j] = clean_arrays(arrays[name], clip, nan_to_num)
        else:
            values[:, j], is_absent[:, j] = fill or 0.0, fill is None
    return np.ma.MaskedArray(values, mask=is_absent)
