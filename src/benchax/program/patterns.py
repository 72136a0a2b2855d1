"""Recognizes arrays of a traced program: identities, one-hot matrices, counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from benchax.program.index import MOVES, TracedOp, Value

Arrays = Mapping[Value, Any]
"""The contents of some values, by value."""
MOST_ELEMENTS = 1 << 24
"""Elements of a known array that are compared with what they could be."""


def counted_axis(value: Value, arrays: Arrays | None = None) -> int | None:
    """The axis along which it counts 0, 1, 2, …, the same everywhere else; None if it isn't known to."""
    view = value.view(out=True)
    source, maker = view.source, view.source.maker
    axis = None
    if maker is not None and maker.name == "iota":
        axis = maker.params["dimension"]
    elif maker is not None and maker.name in ("add", "sub") and maker.reads[1].number == 0:
        axis = counted_axis(maker.reads[0], arrays)
    elif len(source.shape) == 1 and (array := _array(source, arrays)) is not None:
        axis = 0 if np.array_equal(array, np.arange(len(array))) else None
    return next((i for i, one in enumerate(view.axes) if axis is not None and one == axis), None)


def unwrap_index(value: Value) -> Value:
    """The index as written: JAX adds the length of the axis to negative ones."""
    while (maker := value.back(MOVES, out=True).maker) is not None and maker.name == "select_n":
        below = maker.reads[0].made_by("lt")
        if below is None or below.reads[1].number != 0 or len(maker.reads) != 3:
            break
        value = maker.reads[1]
    return value


def identity_axes(value: Value, arrays: Arrays | None = None) -> tuple[int, int] | None:
    """The axes along which it is an identity matrix; None if it isn't known to be one."""
    view = value.view(out=True)
    source, maker = view.source, view.source.maker
    axes = None
    if maker is not None and maker.name == "select_n" and len(maker.reads) == 3:
        is_zero_or_one = maker.reads[1].number == 0 and maker.reads[2].number == 1
        axes = identity_axes(maker.reads[0], arrays) if is_zero_or_one else None
    elif maker is not None and maker.name == "eq" and len(source.shape) == 2 and source.shape[0] == source.shape[1]:
        counted = [counted_axis(one, arrays) for one in maker.reads]
        axes = (0, 1) if sorted(axis for axis in counted if axis is not None) == [0, 1] else None
    elif len(source.shape) == 2 and source.shape[0] == source.shape[1] and source.size <= MOST_ELEMENTS:
        array = _array(source, arrays)
        axes = (0, 1) if array is not None and np.array_equal(array, np.eye(len(array))) else None
    return _placed(view.axes, axes)


def is_one_hot(value: Value, axis: int, arrays: Arrays) -> bool:
    """Are all elements along this axis 0 but one, or is it a sum, a difference, or a multiple of such arrays?"""
    view = value.view(scaled=True, out=True)
    maker, at = view.source.maker, view.axes[axis]
    if maker is None or at is None:
        return False
    match maker.name:
        case "add" | "sub":
            return all(one.shape == view.source.shape and is_one_hot(one, at, arrays) for one in maker.reads)
        case "mul" | "div" | "and":
            factors = maker.reads[:1] if maker.name == "div" else maker.reads
            return any(one.shape == view.source.shape and is_one_hot(one, at, arrays) for one in factors)
        case "select_n" if len(maker.reads) == 3 and maker.reads[1].number == 0:
            return bool(maker.reads[0].shape) and is_one_hot(maker.reads[0], at, arrays)
        case "eq":
            sides = ((maker.reads[0], maker.reads[1]), (maker.reads[1], maker.reads[0]))
            return any(counted_axis(count, arrays) == at and at not in index.varying for count, index in sides)
        case "gather":
            return identity_axes(maker.reads[0], arrays) is not None and _takes_rows(maker, at)
        case "scatter":
            return maker.reads[0].number == 0 and _writes_one_of_each_row(maker, at, arrays)
    return False


def root_of(value: Value) -> Value | None:
    """The value whose square it is; None if it is not written as a square."""
    op = value.maker
    if op is None or op.name not in ("mul", "square", "integer_pow", "pow"):
        return None
    is_product = op.name == "mul" and op.reads[0] is op.reads[1]
    is_power = op.params.get("y") == 2 or (op.name == "pow" and op.reads[1].number == 2)
    return op.reads[0] if is_product or is_power or op.name == "square" else None


def _placed(axes: tuple[int | None, ...], found: tuple[int, int] | None) -> tuple[int, int] | None:
    """Where two axes of a source are in a view of it."""
    placed = [i for i, axis in enumerate(axes) if found is not None and axis in found]
    return (placed[0], placed[1]) if len(placed) == 2 else None


def _takes_rows(gather: TracedOp, axis: int) -> bool:
    """Is this axis of the result a whole axis of the array that is indexed?"""
    numbers, sizes = gather.params["dimension_numbers"], gather.params["slice_sizes"]
    kept = [i for i in range(len(sizes)) if i not in numbers.collapsed_slice_dims]
    whole = [i for i, at in zip(numbers.offset_dims, kept, strict=False) if sizes[at] == gather.reads[0].shape[at]]
    return axis in whole


def _writes_one_of_each_row(scatter: TracedOp, axis: int, arrays: Arrays) -> bool:
    """Does `x.at[arange(n), index].set(1)` write it, with the index along this axis?"""
    numbers, indices = scatter.params["dimension_numbers"], scatter.reads[1].made_by("concatenate", through=())
    written = tuple(numbers.scatter_dims_to_operand_dims)
    if numbers.update_window_dims or len(written) < 2 or axis not in written or indices is None:
        return False
    columns = [unwrap_index(one) for one in indices.reads]
    others = [one for one, at in zip(columns, written, strict=False) if at != axis]
    return len(columns) == len(written) and all(counted_axis(one, arrays) is not None for one in others)


def _array(value: Value, arrays: Arrays | None) -> np.ndarray | None:
    """Its contents, if they are known."""
    array = value.const if value.const is not None else (arrays or {}).get(value)
    array = value.literal if array is None and np.ndim(value.literal) else array
    is_whole = array is not None and getattr(array, "shape", None) == value.shape
    return np.asarray(array) if is_whole and value.size <= MOST_ELEMENTS else None
